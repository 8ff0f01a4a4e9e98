"""The console: web pages about jobs, rendered on the server. Every page works without JavaScript.

timeline.py   ledger → lanes, spans and marks          svg.py              lanes → SVG
pages/        what each page shows, without HTML       templates/          the HTML
web.py        headers, sign-in and errors              page_routes.py      routes that show something
actions.py    what users may change                    action_routes.py    routes that change jobs
sign_in.py    on the user's machine                    iap_sign_in.py      behind Identity-Aware Proxy
forgery.py    forms that other sites cannot send
"""
