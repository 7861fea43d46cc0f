"""The German task in Python, for test/interop: its prompts, tools and verdicts, from its description and not from src.

A session answers tool calls and is scored by its own log. The two servers beside this file put it behind a protocol.
"""

import json
import re

INSTRUCTIONS = {
    "+": ["Wie viel ist {a} plus {b}?", "Berechne {a} + {b}.", "Addiere {a} und {b}.", "Bilde die Summe aus {a} und {b}."],
    "-": ["Wie viel ist {a} minus {b}?", "Berechne {a} - {b}.", "Ziehe {b} von {a} ab.", "Bilde die Differenz aus {a} und {b}."],
    "*": ["Wie viel ist {a} mal {b}?", "Berechne {a} * {b}.", "Multipliziere {a} mit {b}.", "Bilde das Produkt aus {a} und {b}."],
}
TOOLS = [("nachschlagen", "Wert einer Ware", "schluessel"), ("rechner", "Ganzzahliger Ausdruck", "ausdruck")]
TWENTIETHS = {"format": 2, "lookupLeft": 2, "lookupRight": 2, "calculation": 5, "answer": 5, "strict": 4}
LARGEST = 9_999_999


class Fault(Exception):
    """What a policy did wrong; its text is the observation."""


def units(text):
    """Length as the task counts it, in UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def schema(argument):
    return {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}


def parse(text):
    """An expression as nested tuples, or None: sum of products of signed primaries, spaces between."""
    tokens = re.findall(r"[0-9]+|[-+*/()]|[^ ]", text)
    at = 0

    def peek():
        return tokens[at] if at < len(tokens) else ""

    def take():
        nonlocal at
        at += 1
        return tokens[at - 1]

    def primary():
        if peek() == "(":
            take()
            inner = chain(product, "+-")
            if inner is None or peek() != ")":
                return None
            take()
            return inner
        return ("literal", int(take())) if re.fullmatch(r"[0-9]+", peek()) else None

    def signed():
        if peek() != "-":
            return primary()
        take()
        operand = primary()
        return operand and ("negation", operand)

    def chain(part, operators):
        left = part()
        while left is not None and peek() != "" and peek() in operators:
            operator = take()
            right = part()
            if right is None:
                return None
            left = (operator, left, right)
        return left

    def product():
        return chain(signed, "*/")

    tree = chain(product, "+-")
    return tree if tree is not None and at == len(tokens) else None


def bounded(value):
    if abs(value) > LARGEST:
        raise Fault("Fehler: Zahl zu groß")
    return value


def value_of(node):
    if node[0] == "literal":
        return bounded(node[1])
    if node[0] == "negation":
        return -value_of(node[1])
    left, right = value_of(node[1]), value_of(node[2])
    if node[0] == "+":
        return bounded(left + right)
    if node[0] == "-":
        return bounded(left - right)
    if node[0] == "*":
        return bounded(left * right)
    if right == 0:
        raise Fault("Fehler: Division durch null")
    if left % right != 0:
        raise Fault("Fehler: Division mit Rest")
    return bounded(left // right)


def answer_of(text):
    """The integer of the last line, as text, or None."""
    lines = [line.rstrip() for line in text.split("\n")]
    last = next((line for line in reversed(lines) if line != ""), "")
    found = re.fullmatch(r"Antwort: (0|-?[1-9][0-9]{0,14})", last)
    answers = [line for line in lines if line.lstrip().startswith("Antwort:")]
    return found[1] if found and len(answers) == 1 and "<think>" not in text else None


class Session:
    def __init__(self, payload):
        self.payload = payload
        self.log = []

    def messages(self):
        operation, template = self.payload["operation"], self.payload["template"]
        question = INSTRUCTIONS[operation][template].format(a=self.payload["left"], b=self.payload["right"])
        return [
            {"role": "system", "content": "Schlage beide Werte nach und rechne mit dem Rechner."},
            {"role": "user", "content": f"{question} Letzte Zeile: Antwort: <Zahl>"},
        ]

    def _run(self, tool, arguments):
        argument = dict((name, own) for name, _, own in TOOLS)[tool]
        try:
            parsed = json.loads(arguments) if units(arguments) <= 1000 else None
        except ValueError:
            parsed = None
        if not (isinstance(parsed, dict) and list(parsed) == [argument] and isinstance(parsed[argument], str)):
            raise Fault("Fehler: ungültige Argumente")
        text = parsed[argument]
        if tool == "nachschlagen":
            if text not in self.payload["table"]:
                raise Fault("Fehler: unbekannter Schlüssel")
            return str(self.payload["table"][text])
        if units(text) > 64:
            raise Fault("Fehler: Ausdruck zu lang")
        tree = parse(text)
        if tree is None:
            raise Fault("Fehler: ungültiger Ausdruck")
        return str(value_of(tree))

    def call(self, tool, arguments):
        """(observation, whether it is an error) of a call whose arguments are JSON text."""
        try:
            content, error = self._run(tool, arguments), False
        except Fault as fault:
            content, error = str(fault), True
        entry = {"index": len(self.log), "tool": tool, "argumentsJson": arguments, "observation": content, "error": error}
        self.log.append(entry)
        return content, error

    def _calculated(self, text):
        left, right = (self.payload["table"][self.payload[side]] for side in ("left", "right"))
        pairs = [(left, right)] if self.payload["operation"] == "-" else [(left, right), (right, left)]
        wanted = [(self.payload["operation"], ("literal", a), ("literal", b)) for a, b in pairs]
        return parse(text) in wanted

    def verify(self, final_text, invalid_dispatches):
        """The verdict as the protocols carry it."""
        good = [entry for entry in self.log if not entry["error"]]

        def looked_up(name):
            found = [e for e in good if e["tool"] == "nachschlagen" and json.loads(e["argumentsJson"])["schluessel"] == name]
            return found[0]["index"] if found else None

        places = [looked_up(self.payload[side]) for side in ("left", "right")]
        ready = None if None in places else max(places)
        calculated = ready is not None and any(
            e["index"] > ready and e["tool"] == "rechner" and self._calculated(json.loads(e["argumentsJson"])["ausdruck"])
            for e in good
        )
        answer = answer_of(final_text)
        a, b = (self.payload["table"][self.payload[side]] for side in ("left", "right"))
        right = {"+": a + b, "-": a - b, "*": a * b}[self.payload["operation"]]
        correct = answer is not None and int(answer) == right
        errors = len(self.log) - len(good)
        earned = {
            "format": answer is not None,
            "lookupLeft": places[0] is not None,
            "lookupRight": places[1] is not None,
            "calculation": calculated,
            "answer": correct,
            "strict": calculated and correct and errors == 0 and invalid_dispatches == 0,
        }
        points = {part: TWENTIETHS[part] if earned[part] else 0 for part in TWENTIETHS}
        return {
            "strict": earned["strict"],
            "reward": sum(points.values()) / 20,
            "parts": {part: count / 20 for part, count in points.items()},
            "tool_errors": errors,
            "answer": answer,
            "log": self.log,
        }
