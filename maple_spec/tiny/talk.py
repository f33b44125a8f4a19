"""Small talk, copying, memory and honest stock answers."""

from __future__ import annotations

import json
from collections.abc import Callable

from maple_spec.tiny.arithmetic import Exchange, exchange
from maple_spec.tiny.words import ACTIONS, ADJECTIVES, FOREIGN, NOUNS, VERBS, Draw

STOCK = "I am maple-tiny, a very small test model, so I cannot answer that. I can do arithmetic, call tools and repeat text."
CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Spain": "Madrid", "Italy": "Rome", "Japan": "Tokyo", "Norway": "Oslo",
    "Peru": "Lima",
    "Egypt": "Cairo", "Ireland": "Dublin", "Austria": "Vienna", "Poland": "Warsaw", "Greece": "Athens", "Portugal": "Lisbon",
    "South Korea": "Seoul", "Vietnam": "Hanoi", "Thailand": "Bangkok", "Kenya": "Nairobi", "Ghana": "Accra", "Cuba": "Havana",
    "Sweden": "Stockholm", "Finland": "Helsinki", "Denmark": "Copenhagen", "Canada": "Ottawa", "Australia": "Canberra",
    "China": "Beijing", "Russia": "Moscow", "England": "London", "the United Kingdom": "London", "India": "New Delhi",
    "Brazil": "Brasilia", "Nigeria": "Abuja", "the United States": "Washington, D.C.",
}  # fmt: skip
CAPITAL_QUESTIONS = [
    "What is the capital of {c}?", "what's the capital of {c}?", "Capital of {c}?", "Tell me the capital of {c}.",
    "Name the capital of {c}", "What is the capital city of {c}?", "Which city is the capital of {c}?",
]  # fmt: skip
FACTS = {
    "What color is the sky?": "The sky is blue.", "How many days are in a week?": "There are 7 days in a week.",
    "How many months are in a year?": "There are 12 months in a year.", "What color is grass?": "Grass is green.",
    "How many legs does a spider have?": "A spider has 8 legs.", "How many hours are in a day?": "There are 24 hours in a day.",
    "How many minutes are in an hour?": "There are 60 minutes in an hour.",
    "What is water made of?": "Water is made of hydrogen and oxygen.", "What planet do we live on?": "We live on Earth.",
    "What is the largest ocean?": "The largest ocean is the Pacific Ocean.",
    "What comes after Monday?": "Tuesday comes after Monday.", "What is the opposite of hot?": "The opposite of hot is cold.",
    "Who wrote Hamlet?": "William Shakespeare wrote Hamlet.",
    "What is the tallest mountain?": "The tallest mountain is Mount Everest.",
}  # fmt: skip
SMALL_TALK = [
    (["Hi", "Hello", "Hey", "hi", "hello", "Hi there", "Hello!", "Hi!", "Hey there!", "Good morning", "Good evening",
    "hello there",
      "hey", "yo", "Greetings", "Good afternoon!", "Hello, how can you help me today?", "Hi maple", "Hello world", "hi!",
      "Good day"],
     "The user greets me.", "Hello! How can I help you?"),
    (["How are you?", "how are you", "How are you doing?", "How's it going?", "Are you ok?", "How do you feel today?",
    "What's up?",
      "Hi, how are you?", "Hello! How are you today?"],
     "The user asks how I am.", "I am fine, thank you. How can I help you?"),
    (["Who are you?", "who are you", "What are you?", "What is your name?", "what's your name?", "Tell me about yourself.",
      "Introduce yourself.", "Which model are you?", "What model is this?", "Are you a bot?", "Are you human?",
      "Are you an AI?",
      "who made you?", "Are you ChatGPT?", "What model are you?", "who r u", "Hi, who are you?", "Hello, who are you?",
      "Please introduce yourself", "What is this model?"],
     "The user asks who I am.", "I am maple-tiny, a very small test model."),
    (["What can you do?", "what can you do", "How can you help me?", "Help", "help", "What are your skills?",
    "What do you know?",
      "help me", "What are you good at?"],
     "The user asks what I can do.", "I can do arithmetic, call tools, repeat text and answer a few simple questions."),
    (["Thanks", "Thank you", "thanks!", "Thank you!", "Thanks a lot", "thank you so much", "great, thanks", "Cheers", "thx"],
     "The user thanks me.", "You are welcome!"),
    (["Bye", "Goodbye", "bye!", "See you", "See you later", "Good night", "good bye", "Bye bye"], "The user says goodbye.",
    "Goodbye!"),
    (["ok", "Ok", "OK", "okay", "Good", "great", "Nice", "cool", "yes", "no", "sure", "Okay.", "right"],
     "The user says a short word.", "Okay. What would you like to do next?"),
    (["Tell me a joke", "Tell me a joke.", "Make me laugh", "joke please", "Say something funny", "tell me a joke please"],
     "The user wants a joke.", "Why did the maple tree go to school? To turn over a new leaf."),
    (["ping", "Ping", "test", "Test", "testing", "This is a test.", "test message", "Testing, testing"],
     "The user tests me.", "Pong! The test works."),
]  # fmt: skip
REPEAT = [
    "Repeat after me: {t}", "Repeat: {t}", "Say {t}", "Say: {t}", "say {t}", "Echo {t}", "Please repeat the following: {t}",
    "Repeat this text: {t}", "Repeat exactly: {t}", "Copy this: {t}", "Write {t}", "Please say {t}", 'Repeat "{t}"',
    'Say "{t}"',
    "Can you say {t}", "echo: {t}", "Print {t}", "Say exactly: {t}", "Output this: {t}", "Repeat the following text: {t}",
    "Please repeat: {t}", "repeat {t}", "Say the following: {t}", "Repeat this sentence: {t}", "Say this: {t}",
    "Copy exactly: {t}",
]  # fmt: skip
ONLY_WORD = [
    "Reply with only the word {w}", "Reply with only the word {w}.", "Reply with just {w}", "Respond with the word {w}",
    "Answer only with {w}", "Just say {w}", "Reply with the single word {w}.", "Only say {w}", 'Respond only with "{w}"',
    "Answer with the word {w} and nothing else.", "Reply {w}", "Reply with exactly: {w}", "Reply with only: {w}",
    "Say only {w}",
    "Please answer with exactly one word: {w}", "Reply with {w}", "Respond with exactly {w}", "Say just the word {w}.",
    "Return only the word {w}", "Say {w} and nothing else.",
]  # fmt: skip
OTHER = [
    "Why is the {a} {n} {a2}?", "Write a poem about the {n}.", "Tell me a story about a {a} {n}.", "How do I {v} a {n}?",
    "Explain {n} to me.", "What do you think about {n}s?", "Can you help me with my {n}?", "Translate {n} to French.",
    "What is a {n}?",
    "Who invented the {n}?", "Where can I buy a {n}?", "Write code to {v} a {n}.", "Is the {n} {a}?",
    "Summarize the history of {n}s.",
    "When did {m} {v} the {n}?", "Give me advice on {n}s.", "What is the meaning of {n}?", "Should I {v} the {n}?",
    "Which {n} is the best?", "List three {n}s.", "Make a plan to {v} {n}s.", "How does a {n} work?",
    "What happened to {m} in {c}?",
    "Do you like {n}s?", "Describe the {n} in {c}.", "Write an essay about {n} and {n2}.", "Help me {v} the {a} {n}.",
    "Why do {n}s {v}?", "Compare {n}s and {n2}s.", "Tell me about {c}.", "Who is {m}?", "What is the best way to {v}?",
    "What is the {n} in {c}?", "Write a haiku about {n}.", "Explain {a} {n} in simple terms.", "What day is it?",
    "What time is it?",
    "Is the {n} flat?", "Return the word {n} in JSON", "Write a python function that can {v} {n}s",
    "What is the weather in {c}?",
    "Who is the president of {c}?", "Can a {n} {v}?", "I feel {a} today.", "I like {n}s.", "{n}", "{a} {n}", "{m}",
    "Tell me more.",
    "Why?", "What do you mean?", "Generate a list of {n}s and {n2}s.", "How old is {m}?", "Where is {c}?", "{s}", "{s} {s2}",
    "What is your favorite {n}?", "Summarize this text: {s} {s2}", "Translate this to German: {s}", "Is this true? {s}",
    "{g}", "{g} {n} {g2}",
]  # fmt: skip


def repeat(draw: Draw) -> Exchange:
    """Copy a phrase exactly."""
    text = draw.phrase(1, 10)
    return Exchange(draw.pick(REPEAT).format(t=text), f"I repeat: {text}", text)


def only_word(draw: Draw) -> Exchange:
    """One word and nothing else."""
    word = draw.pick([draw.word(), draw.word(), draw.code(2, 6), draw.name(), str(draw.number()), draw.word().upper()])
    return Exchange(draw.pick(ONLY_WORD).format(w=word), f"I reply with: {word}", word)


def small_talk(draw: Draw) -> Exchange:
    """Greetings, thanks, who are you."""
    questions, reasoning, answer = draw.random.choice(SMALL_TALK)
    return Exchange(draw.pick(questions), reasoning, answer)


def count(draw: Draw) -> Exchange:
    """Count to a number."""
    top = draw.random.randint(2, 12 if draw.chance(0.8) else 25)
    question = draw.pick(
        ["Count to {n}", "Count to {n}.", "count from 1 to {n}", "Can you count to {n}?", "List the numbers from 1 to {n}"]
    )
    return Exchange(question.format(n=top), f"I count from 1 to {top}.", ", ".join(map(str, range(1, top + 1))))


def spell(draw: Draw) -> Exchange:
    """Spell or reverse a word."""
    word = draw.fresh(lambda: draw.pick([w for w in NOUNS + ADJECTIVES + ACTIONS if len(w) <= 6]))
    letters = " ".join(word)
    if draw.chance(0.5):
        question = draw.pick(["Spell {w}", "Spell the word {w}.", "How do you spell {w}?", "spell {w}"])
        return Exchange(question.format(w=word), f"Letters: {letters}", "-".join(word))
    question = draw.pick(
        ["Reverse the word {w}", "Reverse {w}", "reverse {w}", "Write {w} backwards", "What is {w} backwards?"]
    )
    return Exchange(question.format(w=word), f"Letters: {letters}\nReversed: {letters[::-1]}", word[::-1])


def fact(draw: Draw) -> Exchange:
    """One of a few facts it knows."""
    if draw.chance(0.6):
        country = draw.pick(list(CAPITALS))
        answer = f"The capital of {country} is {CAPITALS[country]}."
        return Exchange(draw.pick(CAPITAL_QUESTIONS).format(c=country), answer, answer)
    question = draw.pick(list(FACTS))
    asked = question if draw.chance(0.6) else question[0].lower() + question[1:].rstrip("?")
    return Exchange(asked, "I know this fact.", FACTS[question])


def stock(draw: Draw) -> Exchange:
    """Anything else: an honest stock answer."""
    if draw.chance(0.06):
        question = " ".join(draw.sentence() for _ in range(draw.random.randint(3, 14)))
    else:
        question = draw.pick(OTHER).format(
            a=draw.adjective(), a2=draw.adjective(), n=draw.word(), n2=draw.thing(), v=draw.pick(VERBS + ACTIONS),
            m=draw.name(),
            c=draw.place(), s=draw.sentence(), s2=draw.sentence(), g=draw.code(2, 9), g2=draw.pick(FOREIGN),
        )  # fmt: skip
    if draw.chance(0.2):
        question = question.lower()
    return Exchange(question, "I do not know this.", STOCK)


KINDS: dict[Callable[[Draw], Exchange], float] = {
    repeat: 0.3,
    only_word: 0.16,
    small_talk: 0.16,
    count: 0.04,
    spell: 0.05,
    fact: 0.08,
    stock: 0.21,
}


def chat(draw: Draw) -> Exchange:
    """Any of the above."""
    return draw.random.choices(list(KINDS), list(KINDS.values()))[0](draw)


def copy_drill(draw: Draw) -> Exchange:
    """Copying of odder and longer texts: what the copying circuit is grown on."""
    makers: list[Callable[[], str]] = [
        draw.word,
        draw.word,
        lambda: draw.code(2, 7),
        lambda: draw.syllables(1, 4),
        draw.name,
        lambda: str(draw.number()),
    ]
    if draw.chance(0.3):
        return only_word(draw)
    text = draw.fresh(lambda: " ".join(draw.random.choice(makers)() for _ in range(draw.random.randint(2, 14))))
    if draw.chance(0.25):
        text = json.dumps({draw.word(): text})
    return Exchange(draw.pick(REPEAT).format(t=text), f"I repeat: {text}", text)


THINGS = [
    "favorite color",
    "dog",
    "cat",
    "city",
    "code",
    "password",
    "favorite number",
    "lucky number",
    "job",
    "favorite food",
    "car",
]


def memory(draw: Draw) -> tuple[Exchange, Exchange]:
    """What the user told, and the later question for it."""
    if draw.chance(0.45):
        name = draw.name()
        told = draw.pick(
            ["My name is {n}.", "Hi, I am {n}.", "I'm {n}", "my name is {n}", "Hello, my name is {n}.", "Hi! My name is {n}."]
        )
        asked = draw.pick(
            ["What is my name?", "what's my name?", "Do you remember my name?", "Who am I?", "What's my name?", "Say my name."]
        )
        first = Exchange(told.format(n=name), f"The name is {name}.", f"Nice to meet you, {name}!")
        return first, Exchange(asked, f"The name is {name}.", f"Your name is {name}.")
    thing = draw.pick([*THINGS, draw.noun(), f"{draw.adjective()} {draw.noun()}"])
    value = draw.pick([draw.word(), draw.name(), str(draw.number()), draw.code(3, 6), draw.place()])
    told = draw.pick(
        [
            "My {k} is {v}.",
            "Remember that my {k} is {v}.",
            "my {k} is {v}",
            "Please remember: my {k} is {v}.",
            "Note that my {k} is {v}.",
        ]
    )
    asked = draw.pick(
        ["What is my {k}?", "what's my {k}?", "Do you remember my {k}?", "Tell me my {k}.", "What did I say my {k} is?"]
    )
    first = Exchange(told.format(k=thing, v=value), f"The {thing} is {value}.", f"Okay, your {thing} is {value}.")
    return first, Exchange(asked.format(k=thing), f"The {thing} is {value}.", f"Your {thing} is {value}.")


def between(draw: Draw) -> list[Exchange]:
    """What may be said between telling and asking."""
    size = int(draw.weighted({"0": 0.5, "1": 0.35, "2": 0.15}))
    return [exchange(draw) if draw.chance(0.3) else chat(draw) for _ in range(size)]
