"""OpenAI's JSON to this project's values and back: pure functions, the only code that spells wire names.

Bodies come in valid: the server has checked them against openapi.yaml, so nothing here restates a type or a range.
"""
