"""Words, names, numbers and the rule that holds some of them out.

A text is held out when its salted CRC-32 is divisible by ten: training never draws such an operand pair, tool name, parameter
name or value, and the evaluation draws no other. A text is judged whole: get_weather may be held out while weather is not.
One rule for words from lists and for invented ones alike.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence
from typing import TypeVar
from zlib import crc32

T = TypeVar("T")

NOUNS = [
    "weather", "stock", "price", "user", "order", "file", "note", "task", "event", "email", "message", "song",
    "movie", "book", "car", "train", "flight", "hotel", "room", "ticket", "invoice", "account", "balance", "report",
    "city", "country", "map", "route", "photo", "image", "video", "score", "game", "team", "player", "recipe", "meal",
    "drink", "light", "lamp", "door", "window", "temperature", "humidity", "sensor", "robot", "server", "database",
    "table", "record", "page", "link", "product", "item", "cart", "coupon", "review", "comment", "post", "channel",
    "calendar", "meeting", "contact", "phone", "number", "address", "package", "shipment", "status", "job", "queue",
    "log", "metric", "alert", "device", "printer", "camera", "alarm", "timer", "clock", "currency", "rate", "tax",
    "loan", "wallet", "token", "key", "password", "patient", "doctor", "diet", "workout", "step", "heart", "plant",
    "garden", "soil", "river", "lake", "moon", "planet", "star", "animal", "dog", "cat", "bird", "fish", "horse",
    "shop", "store", "menu", "pizza", "coffee", "tea", "bread", "milk", "apple", "banana", "orange", "lemon", "grape",
    "sugar", "salt", "paper", "pencil", "desk", "chair", "wall", "floor", "roof", "bridge", "road", "tunnel", "ship",
    "boat", "plane", "wheel", "engine", "motor", "battery", "cable", "screen", "mouse", "keyboard", "galaxy",
    "violin", "turbine", "glacier", "harbor", "fabric", "museum", "tariff", "beacon", "quiz", "ferry", "forecast",
    "distance", "schedule", "budget", "playlist", "article", "topic", "question", "answer", "story", "poem",
    "picture", "color", "shape", "circle", "square", "triangle", "volume", "speed", "pressure", "forest", "island",
    "desert", "mountain", "valley", "storm", "rain", "snow", "wind", "cloud", "fire", "ice", "stone", "metal",
    "glass", "wood", "cotton", "leather", "silver", "gold", "copper", "iron",
]  # fmt: skip
VERBS = [
    "get", "set", "find", "search", "create", "delete", "update", "send", "list", "fetch", "read", "write", "open",
    "close", "start", "stop", "play", "pause", "book", "cancel", "add", "remove", "check", "convert", "translate",
    "run", "move", "copy", "show", "load", "save", "lookup", "query", "turn", "schedule", "track", "order", "buy",
    "sell", "post", "upload", "download", "reset", "lock", "unlock", "count", "measure", "scan", "print", "inspect",
    "deploy", "archive", "compose", "render", "merge", "compile", "audit", "compute", "calculate", "describe", "fill",
    "filter", "install", "join", "publish", "rate", "rename", "repair", "reply", "report", "reserve", "share", "sort",
    "split", "submit", "sync", "test", "validate", "watch",
]  # fmt: skip
ADJECTIVES = [
    "red", "blue", "green", "small", "big", "old", "new", "fast", "slow", "quiet", "loud", "happy", "sad", "warm",
    "cold", "bright", "dark", "soft", "hard", "clean", "dirty", "empty", "full", "sharp", "sweet", "bitter", "brave",
    "calm", "clever", "gentle", "kind", "lazy", "proud", "shy", "silly", "tiny", "huge", "young", "wise", "wild",
    "purple", "yellow", "pink", "brown", "black", "white", "grey", "round", "flat", "deep", "high", "low", "long",
    "short", "strong", "weak", "rich", "poor", "simple", "strange", "famous", "modern", "ancient", "honest",
]  # fmt: skip
ACTIONS = [
    "walk", "run", "jump", "sleep", "eat", "drink", "sing", "dance", "read", "write", "swim", "fly", "climb", "paint",
    "cook", "build", "draw", "laugh", "smile", "wait", "listen", "travel", "work", "play", "rest", "talk", "shout",
    "whisper", "dream", "study", "learn", "teach", "hide", "seek", "fall", "grow", "shine",
]  # fmt: skip
NAMES = [
    "Ada", "Bob", "Carol", "Dan", "Eve", "Frank", "Grace", "Heidi", "Ivan", "Judy", "Ken", "Lena", "Maria", "Nina",
    "Oscar", "Paul", "Quinn", "Rosa", "Sam", "Tina", "Uma", "Victor", "Wendy", "Xavier", "Yara", "Zoe", "Alice",
    "Ben", "Clara", "David", "Emma", "Felix", "Hugo", "Iris", "Jack", "Kate", "Leo", "Mia", "Noah", "Olga", "Peter",
    "Ruth", "Sara", "Tom", "Vera", "Will", "Anna", "John", "Mary", "James", "Linda", "Robert", "Laura", "Michael",
    "Julia", "Daniel", "Sophie", "Chris", "Alex", "Max", "Lucy", "Omar", "Fatima", "Chen", "Yuki", "Raj", "Priya",
    "Ahmed",
]  # fmt: skip
CITIES = [
    "Lagos", "Paris", "Tokyo", "Berlin", "Madrid", "Rome", "Oslo", "Lima", "Cairo", "Delhi", "Boston", "Chicago",
    "Sydney", "Nairobi", "Accra", "Dublin", "Vienna", "Prague", "Warsaw", "Athens", "Lisbon", "Toronto", "Seoul",
    "Hanoi", "Bangkok", "Manila", "Jakarta", "Mumbai", "Dhaka", "Tehran", "Quito", "Bogota", "Havana", "Kyoto",
    "Osaka", "Milan", "Turin", "Munich", "Hamburg", "Zurich", "Geneva", "Brussels", "London", "Leeds", "York",
    "Bristol", "Denver", "Dallas", "Austin", "Seattle", "Miami", "Reykjavik", "Helsinki", "Santiago", "Ankara",
    "Kampala", "Porto", "Valencia", "Glasgow", "Perth", "Zagreb", "Stockholm", "Copenhagen", "Montreal", "Vancouver",
    "Houston", "Phoenix",
]  # fmt: skip
LONG_CITIES = [
    "New York", "San Francisco", "Los Angeles", "Cape Town", "Hong Kong", "New Delhi", "Buenos Aires", "Mexico City",
    "Rio de Janeiro",
    "Tel Aviv", "Abu Dhabi", "Kuala Lumpur", "San Diego", "Las Vegas", "Addis Ababa", "Boston, MA", "Austin, TX",
    "Paris, France",
    "San Francisco, CA", "Tokyo, Japan", "São Paulo", "Zürich", "Málaga", "Kraków",
]  # fmt: skip
FOREIGN = [
    "café",
    "naïve",
    "über",
    "señor",
    "мир",
    "привет",
    "日本",
    "你好",
    "안녕",
    "🙂",
    "🎉",
    "Ünal",
    "Øst",
    "année",
    "coração",
]
WORDS = [w.lower() for w in NOUNS + VERBS + ADJECTIVES + ACTIONS + NAMES + CITIES if len(w) > 2]
CONSONANTS = "bcdfghjklmnprstvwz"
VOWELS = "aeiou"


def is_held_out(text: str) -> bool:
    """Whether training never sees this text as operand pair, name or value. The salt leaves everyday words to training."""
    return crc32(f"825:{text}".encode()) % 10 == 0


class Draw:
    """A seeded source of words that draws either only held-out ones or none of them."""

    def __init__(self, seed: str | int, held_out: bool = False) -> None:
        self.random = random.Random(seed)
        self.held_out = held_out
        self._within = False  # a larger text, which is judged whole

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random.random() < probability

    def pick(self, options: Sequence[str]) -> str:
        """One of them, held out or not: wording, frames, small closed sets."""
        return self.random.choice(options)

    def weighted(self, options: dict[str, float]) -> str:
        """One key, by weight."""
        return self.random.choices(list(options), list(options.values()))[0]

    def part(self, make: Callable[[], T]) -> T:
        """What make draws for a larger text: held out or not."""
        outer, self._within = self._within, True
        try:
            return make()
        finally:
            self._within = outer

    def fresh(self, make: Callable[[], str]) -> str:
        """The first made text on this draw's side of the rule; within a larger text, just the first."""
        while True:
            text = self.part(make)
            if self._within or is_held_out(text) == self.held_out:
                return text

    def syllables(self, low: int, high: int) -> str:
        """An invented word."""
        count = self.random.randint(low, high)
        return self.fresh(lambda: "".join(self._syllable() for _ in range(count)))

    def _syllable(self) -> str:
        r = self.random
        return r.choice(CONSONANTS) + r.choice(VOWELS) + (r.choice(CONSONANTS) if r.random() < 0.35 else "")

    def glued(self, low: int = 1, high: int = 3) -> str:
        """Fragments of real words put together: what keeps every piece of the tokenizer in use, in ever new company."""
        count = self.random.randint(low, high)
        return self.fresh(lambda: "".join(self._fragment() for _ in range(count)))

    def _fragment(self) -> str:
        word = self.random.choice(WORDS)
        start = self.random.randrange(max(1, len(word) - 2))
        return word[start : start + self.random.randint(2, 6)]

    def code(self, low: int = 3, high: int = 8) -> str:
        """Letters and digits in any order."""
        letters = self.pick(
            [string.ascii_letters + string.digits, string.ascii_lowercase, string.ascii_uppercase + string.digits]
        )
        size = self.random.randint(low, high)
        return self.fresh(lambda: "".join(self.random.choice(letters) for _ in range(size)))

    def noun(self) -> str:
        """A noun from the list."""
        return self.fresh(lambda: self.random.choice(NOUNS))

    def verb(self) -> str:
        """A verb that tools do."""
        return self.fresh(lambda: self.random.choice(VERBS))

    def adjective(self) -> str:
        """An adjective from the list."""
        return self.fresh(lambda: self.random.choice(ADJECTIVES))

    def word(self) -> str:
        """Any single word, real or invented."""
        kind = self.random.random()
        if kind < 0.3:
            return self.noun()
        if kind < 0.44:
            return self.adjective()
        if kind < 0.58:
            return self.fresh(lambda: self.random.choice(ACTIONS + VERBS))
        if kind < 0.82:
            return self.glued()
        return self.syllables(1, 4)

    def thing(self) -> str:
        """A noun as part of a name, real or glued together."""
        return self.part(lambda: self.glued(1, 2) if self.chance(0.2) else self.noun())

    def doing(self) -> str:
        """A verb as part of a name, real or glued together."""
        return self.part(lambda: self.glued(1, 2) if self.chance(0.12) else self.verb())

    def name(self) -> str:
        """A person."""
        if self.chance(0.4):
            return self.fresh(lambda: self.random.choice(NAMES))
        if self.chance(0.4):
            return self.fresh(lambda: self.glued().capitalize())
        return self.fresh(lambda: self.syllables(2, 3).capitalize())

    def place(self) -> str:
        """A city, known or invented, of one word or several."""
        kind = self.random.random()
        if kind < 0.35:
            return self.fresh(lambda: self.random.choice(CITIES))
        if kind < 0.5:
            return self.fresh(lambda: self.random.choice(LONG_CITIES))
        if kind < 0.7:
            return self.syllables(2, 4).capitalize()
        if kind < 0.88:
            return self.fresh(lambda: self.glued().capitalize())
        return self.fresh(lambda: f"{self.syllables(1, 2).capitalize()} {self.syllables(1, 3).capitalize()}")

    def number(self, digits: int = 5) -> int:
        """A number of up to so many digits, short ones as likely as long ones."""
        return self.random.randint(0, 10 ** self.random.randint(1, digits) - 1)

    def phrase(self, low: int = 1, high: int = 8) -> str:
        """Some words in a row, sometimes a sentence, sometimes with a foreign one."""
        return self.fresh(lambda: self._phrase(low, high))

    def _phrase(self, low: int, high: int) -> str:
        words = []
        for _ in range(self.random.randint(low, high)):
            kind = self.random.random()
            if kind < 0.72:
                words.append(self.word())
            elif kind < 0.8:
                words.append(str(self.number()))
            elif kind < 0.9:
                words.append(self.name())
            elif kind < 0.96:
                words.append(self.code(2, 6))
            else:
                words.append(self.pick(FOREIGN))
        text = " ".join(words)
        if self.chance(0.3):
            text = text[:1].upper() + text[1:] + self.pick(".!?")
        return text

    def sentence(self) -> str:
        """A plain English sentence."""
        frame = self.pick(SENTENCES)
        return frame.format(
            adjective=self.adjective(), noun=self.noun(), noun2=self.noun(), name=self.name(), name2=self.name(),
            action=self.pick(ACTIONS), action2=self.pick(ACTIONS), city=self.place(),
        )  # fmt: skip


SENTENCES = [
    "The {adjective} {noun} is in the {noun2}.", "{name} likes to {action} in {city}.",
    "The {noun} and the {noun2} are {adjective}.",
    "Every day {name} and {name2} {action} by the {noun}.", "Once upon a time there was a {adjective} {noun}.",
    "{name} has a {adjective} {noun}.", "In {city}, the {noun} is {adjective}.", "It was a {adjective} day.",
    "{name} said: I want to {action}.", "The {noun} can {action} and {action2}.", "{name} went to {city} to see the {noun}.",
    "There is a {noun} on the {noun2}.", "We {action} and {action2} with {name}.",
]  # fmt: skip
