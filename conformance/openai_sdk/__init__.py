"""The official OpenAI SDK judged by its own test suite, as published in its sdist, against a live server.

    suite.json        which release, its sha256, the files that reach a server, and what must come of their tests
    deviations.json   groups of tests that the API reference demands to fail, each with the one answer that may come
    release.py        fetches a release's sdist and unpacks it
    plugin.py         the pytest plugin that holds the suite to the deviations
    suite_run.py      one run of the suite in a process of its own

The suite runs with the SDK of the same sdist, whatever is installed, under the sdist's own configuration of pytest.
OPENAI_SDK_VERSION names another release to judge, whose hash nobody has written down: 3.56.0, or latest.
"""
