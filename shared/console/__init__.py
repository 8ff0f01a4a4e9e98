"""The console: web pages about jobs, rendered on the server. Every page works without JavaScript.

timeline.py   ledger → lanes, spans and marks          svg.py              lanes → SVG
pages/        what each page shows, without HTML       templates/          the HTML
web.py        routes, headers and sign-in              action_routes.py    routes that change jobs
sign_in.py    on the user's machine                    iap_sign_in.py      behind Identity-Aware Proxy
actions.py    what users may change                    forgery.py          forms that other sites cannot send
"""
