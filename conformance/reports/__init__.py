"""Ninety-two failures that users of servers like this one have reported, each as a case that must not fail here.

    outputs.json       what a model emits, and what a client must then read, whole and streamed: 31 cases
    requests.json      requests, and what must be true of their answers: 48 cases
    scenes.json        what several clients do to a server, played by test_scenes.py: 13 cases
    servers.json       the settings of servers that cases name; a case that names none takes the server under test
    script.json        what the scripted server says beside the outputs
    definitions.json   values that requests name in their lists

In requests.json a request is one of chat, completion (fields that change a plain question), or a method with a path and json,
body (raw text) or body_of (made by catalogue.py). "with" repeats it with each value in place of "$", "times" as it is. What a
request expects, or else what its case does, is a status (200 where nothing is said), and the param and code of an error.
"""
