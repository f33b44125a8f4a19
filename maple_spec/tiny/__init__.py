"""maple-tiny: a very small ternary Maple, its weights (weights/), and the recipe that made them.

`python -m maple_spec.tiny.train` makes it again from nothing; `python -m maple_spec.tiny.evaluate` measures it. The recipe
draws all its data itself: words.py, arithmetic.py, values.py, tools.py and talk.py write conversations, corpus.py mixes them,
tokenizer.py learns the byte pairs, network.py, with experts.py, is the trainable twin of maple_spec.model, export.py writes
the 2-bit layout that ships.
"""
