"""The console: web pages about jobs, rendered on the server. Every page works without JavaScript.

timeline.py   ledger → lanes, spans and marks          svg.py     lanes → SVG
pages/        what each page shows, without HTML       templates/ the HTML
web.py        routes, headers and sign-in              signing_in.py, forgery.py
"""
