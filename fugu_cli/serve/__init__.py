"""`fugu serve`: the pool behind one endpoint that speaks three wires (`fugu help serve`).

Read `asking.py` first: what a request is once its wire is forgotten, and what an answer is before it is put on one.
`*_api.py` read a wire, `*_out.py` write it; `service.py` answers, directly (`direct.py`) or through the loop
(`looping.py`); `app.py`, `exchange.py` and `gate.py` are HTTP, `running.py` the process. starlette and uvicorn are
imported nowhere else. It must not know configuration files, keys or providers: wiring hands it a crew.
"""
