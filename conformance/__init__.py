"""A black box: imports nothing of this project and runs against any base URL that claims to speak the API.

CONFORMANCE_URL names the server (http://host:port, without /v1) and CONFORMANCE_KEY its key; without a URL, `python -m
maple_spec serve` is started for the run.
"""
