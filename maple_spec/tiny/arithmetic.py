"""Sums, differences, products and quotients with their written steps, the way maple-tiny is taught to reason.

Digits go from right to left, each step stands alone ("7*3+2=23"), a borrow is a step of its own, and the result is read off
at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from maple_spec.tiny.words import Draw, is_held_out


@dataclass(frozen=True)
class Exchange:
    """A question with the reasoning and the answer that it should get."""

    question: str
    reasoning: str
    answer: str


def add_steps(a: int, b: int) -> str:
    """Column addition: `48 + 7: 8+7=15, 4+0+1=5 -> 55`."""
    left, right = str(a)[::-1], str(b)[::-1]
    steps, carry = [], 0
    for i in range(max(len(left), len(right))):
        x, y = int(left[i : i + 1] or 0), int(right[i : i + 1] or 0)
        total = x + y + carry
        steps.append(f"{x}+{y}" + ("+1" if carry else "") + f"={total}")
        carry = total // 10
    return f"{a} + {b}: " + ", ".join(steps) + f" -> {a + b}"


def subtract_steps(a: int, b: int) -> str:
    """Column subtraction with the borrow written out: `52 - 7: 2-7 borrow 12-7=5, 5-0-1=4 -> 45`."""
    if a < b:
        return f"{a} < {b}, so minus ({b} - {a})\n{subtract_steps(b, a)} -> {a - b}"
    left, right = str(a)[::-1], str(b)[::-1]
    steps, borrow = [], 0
    for i in range(len(left)):
        x, y = int(left[i]), int(right[i : i + 1] or 0)
        tail = f"-{y}" + ("-1" if borrow else "")
        rest = x - y - borrow
        steps.append(f"{x}{tail}={rest}" if rest >= 0 else f"{x}{tail} borrow {x + 10}{tail}={rest + 10}")
        borrow = int(rest < 0)
    return f"{a} - {b}: " + ", ".join(steps) + f" -> {a - b}"


def _times_digit(a: int, digit: int) -> str:
    steps, carry = [], 0
    for char in str(a)[::-1]:
        total = int(char) * digit + carry
        steps.append(f"{char}*{digit}" + (f"+{carry}" if carry else "") + f"={total}")
        carry = total // 10
    return f"{a} * {digit}: " + ", ".join(steps) + f" -> {a * digit}"


def multiply_steps(a: int, b: int) -> str:
    """One line a digit of the second factor, shifted, then added up."""
    if len(str(b)) > len(str(a)):
        return f"{b} * {a}\n{multiply_steps(b, a)}"
    lines, total = [], 0
    for place, char in enumerate(str(b)[::-1]):
        line = _times_digit(a, int(char))
        part = a * int(char) * 10**place
        if place == 0:
            lines.append(line)
        else:
            lines.append(f"{line} -> {part}")
            lines.append(add_steps(total, part))
        total += part
    return "\n".join(lines)


def divide_steps(a: int, b: int) -> str:
    """Long division by one digit: `84 / 7: 8/7=1 r1, 14/7=2 r0 -> 12`."""
    steps, rest = [], 0
    for char in str(a):
        part = rest * 10 + int(char)
        steps.append(f"{part}/{b}={part // b} r{part % b}")
        rest = part % b
    return f"{a} / {b}: " + ", ".join(steps) + f" -> {a // b}" + (f" r{rest}" if rest else "")


STEPS = {"+": add_steps, "-": subtract_steps, "*": multiply_steps, "/": divide_steps}
ASK = [
    "What is {e}?", "What is {e}?", "{e}", "{e}", "{e} = ?", "{e}=", "Compute {e}", "Compute {e}.", "Calculate {e}.",
    "what's {e}?",
    "What's {e}?", "How much is {e}?", "Can you compute {e}?", "Please work out {e}.", "Tell me {e}", "Solve {e}",
    "Evaluate {e}",
    "what is {e}", "What does {e} equal?", "I need to know {e}.", "Hi, what is {e}?", "Hey, can you tell me what {e} is?",
    "Quick question: {e}?", "Could you please calculate {e} for me?", "calculate {e}", "{e}?", "Work out {e} please",
    "{e} please",
    "Do you know what {e} is?", "Give me the result of {e}", "How much does {e} make?", "Find {e}.", "what does {e} give?",
    "Please tell me: {e}", "Now compute {e}.", "And what is {e}?", "Think step by step: {e}", "What is the result of {e}?",
]  # fmt: skip
FORMS = {
    "+": ["{a} + {b}", "{a}+{b}", "{a} + {b}", "{a} plus {b}", "the sum of {a} and {b}"],
    "-": ["{a} - {b}", "{a}-{b}", "{a} - {b}", "{a} minus {b}", "the difference between {a} and {b}"],
    "*": ["{a} * {b}", "{a}*{b}", "{a} * {b}", "{a} x {b}", "{a} times {b}", "{a} multiplied by {b}",
    "the product of {a} and {b}", "{a} × {b}"],
    "/": ["{a} / {b}", "{a}/{b}", "{a} divided by {b}"],
}  # fmt: skip
STORIES = {
    "+": [
        "Add {a} and {b}.", "add {a} to {b}", "I have {a} {n}s and get {b} more. How many {n}s do I have?",
        "{m} has {a} {n}s and buys {b} more. How many now?", "If I add {a} and {b}, what do I get?",
        "There are {a} {n}s here and {b} {n}s there. How many in total?",
    ],
    "-": [
        "Subtract {b} from {a}.", "I had {a} {n}s and lost {b}. How many are left?",
        "{m} has {a} {n}s and gives away {b}. How many are left?", "Take {b} away from {a}.",
        "Of {a} {n}s, {b} are sold. How many remain?",
    ],
    "*": [
        "Multiply {a} by {b}.", "multiply {a} and {b}", "There are {a} boxes with {b} {n}s each. How many {n}s in total?",
        "{m} buys {a} {n}s for {b} dollars each. What is the total?",
    ],
    "/": ["Divide {a} by {b}.", "Share {a} {n}s among {b} people. How many does each get?"],
}  # fmt: skip
ONLY = [" Reply with only the number.", " Answer with just the number.", " Only the number, please.", " Just give the number."]


def _operands(draw: Draw, op: str) -> tuple[int, int]:
    r = draw.random
    if op == "/":
        b = r.randint(2, 9)
        return (r.randint(1, 199) * b if draw.chance(0.75) else r.randint(1, 999)), b
    if op == "*":
        sizes = {"22": 0.66, "11": 0.06, "21": 0.1, "12": 0.05, "31": 0.08, "32": 0.05}
        low = {"1": (0, 9), "2": (10, 99), "3": (100, 999)}
        chosen = draw.weighted(sizes)
        return r.randint(*low[chosen[0]]), r.randint(*low[chosen[1]])
    a, b = (r.randint(0, 10 ** r.choice([1, 2, 2, 3, 3, 3, 4]) - 1) for _ in range(2))
    if op == "-" and a < b and draw.chance(0.8):
        a, b = b, a
    return a, b


def operands(draw: Draw, op: str) -> tuple[int, int]:
    """Two numbers on the draw's side of the held-out rule."""
    while True:
        a, b = _operands(draw, op)
        if is_held_out(f"{a}{op}{b}") == draw.held_out:
            return a, b


def result(a: int, op: str, b: int) -> str:
    """The result as the answer prints it."""
    if op == "/":
        return f"{a // b}" + (f" remainder {a % b}" if a % b else "")
    return str({"+": a + b, "-": a - b, "*": a * b}[op])


def exchange(draw: Draw, op: str | None = None) -> Exchange:
    """A question in one of many wordings, its steps, and the answer."""
    op = op or draw.weighted({"+": 0.25, "-": 0.32, "*": 0.36, "/": 0.07})
    a, b = operands(draw, op)
    if draw.chance(0.17):
        question = draw.pick(STORIES[op]).format(a=a, b=b, n=draw.noun(), m=draw.name())
    else:
        question = draw.pick(ASK).format(e=draw.pick(FORMS[op]).format(a=a, b=b))
    if draw.chance(0.1):
        question = question[0].lower() + question[1:]
    answer = f"{a} {op} {b} = {result(a, op, b)}"
    if draw.chance(0.1):
        question += draw.pick(ONLY)
        answer = result(a, op, b)
    return Exchange(question, STEPS[op](a, b), answer)
