"""The console: web pages about jobs, rendered on the server. Every page works without JavaScript.

web.py            headers, sign-in and errors
page_routes.py    routes that show something
action_routes.py  routes that change jobs
actions.py        what users may change
pages/            what each page shows, without HTML
templates/        the HTML
timeline.py       ledger → lanes, spans and marks
svg.py            lanes → SVG
sign_in.py        sign-in on the user's machine
iap_sign_in.py    sign-in behind Identity-Aware Proxy
forgery.py        forms that other sites cannot send

A ledger is a job's record of events, each with the decision about it.
"""
