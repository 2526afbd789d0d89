"""The web page of `fugu serve --web`: sessions of all folders, what they ask, and what the endpoint
answered. Server-rendered; the one script inserts what the server sends while the page is open.
"""
