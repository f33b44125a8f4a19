"""Clients that people use, each doing what people do with it.

They talk to the server under test, which is maple-tiny where the server is ours, and to answers that are written down
(script.json) where a test needs a certain one, a slow one or a faulty one.
"""
