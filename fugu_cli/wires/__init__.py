"""The three wire formats, one file each, in both directions.

As a client: a prompt becomes a request, a stream becomes a reply (`WireAgent` of providers/ makes
the call). As a server, for `fugu serve`: a client's request is decoded, and an answer encoded whole
or as a stream. The code for the wire alone is pure.
"""
