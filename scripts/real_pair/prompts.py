"""The prompts that a draft is trained on: made from parts, without end, none of them built-in.

A draft that had seen the answers which a sweep measures would look better there than elsewhere;
`tests/scripts/test_real_pair.py` holds the two sets apart. Standard library only.
"""

import random
import re
from collections.abc import Callable, Iterator

Chat = list[dict[str, str]]

EVERY = 8
"""Of the subjects and the places, one in EVERY is kept for held-out prompts."""


def chats(seed: int, held_out: bool = False) -> Iterator[tuple[str, Chat]]:
    """Kinds and chats, the four kinds in turn; no two chats are the same.

    Subjects and places of held-out chats occur in no other; the sentences around them do.
    """
    pick = Pick(random.Random(f"{seed} {held_out}"), held_out)
    seen: set[str] = set()
    while True:
        for kind, make in KINDS.items():
            chat = make(pick)
            text = " ".join(message["content"] for message in chat)
            if text not in seen:
                seen.add(text)
                yield kind, chat


class Pick:
    """Random parts, of which the subjects and places depend on `held_out`."""

    def __init__(self, rng: random.Random, held_out: bool) -> None:
        self.rng = rng
        self._mine = {
            name: [each for i, each in enumerate(phrases) if (i % EVERY == 0) == held_out]
            for name, phrases in SUBJECTS.items()
        }

    def __call__(self, phrases: str) -> str:
        """One of the phrases, its {slots} filled."""
        return self.fill(self.rng.choice(parts(phrases)))

    def fill(self, template: str) -> str:
        """{n} and {m} are small numbers, {big} a large one, {topic} and the like one of SUBJECTS.

        A slot that occurs twice in a template is filled alike; {topic2} differs from {topic}.
        """
        filled: dict[str, str] = {}
        for slot in re.findall(r"\{(\w+)\}", template):
            while slot not in filled:
                value = self._value(slot.rstrip("0123456789"))
                if value not in filled.values():
                    filled[slot] = value
        text = re.sub(r"\{(\w+)\}", lambda found: filled[found[1]], template)
        return text[0].upper() + text[1:] if template.startswith("{") else text

    def _value(self, slot: str) -> str:
        if slot in self._mine:
            return self.rng.choice(self._mine[slot])
        low, high = {"n": (2, 30), "m": (31, 99), "big": (110, 9800)}[slot]
        return str(self.rng.randint(low, high))

    def maybe(self, share: float) -> bool:
        return self.rng.random() < share

    def some(self, phrases: str, count: int) -> list[str]:
        """`count` different phrases, as far as there are."""
        known = parts(phrases)
        return [self.fill(each) for each in self.rng.sample(known, min(count, len(known)))]


def parts(phrases: str) -> list[str]:
    return [line.strip() for line in phrases.strip().splitlines() if line.strip()]


def user(text: str) -> Chat:
    return [{"role": "user", "content": text}]


def chat(pick: Pick) -> Chat:
    asked = pick(ASKED)
    if pick.maybe(0.7):
        asked += " " + " ".join(pick.some(WISHES, pick.rng.randint(1, 3)))
    said = user(asked)
    if pick.maybe(0.15):
        said = [{"role": "system", "content": pick(ROLES)}, *said]
    if pick.maybe(0.15):
        said += [{"role": "assistant", "content": pick(REPLIES)}, *user(pick(FOLLOWING))]
    return said


def code(pick: Pick) -> Chat:
    if pick.maybe(0.25):
        return user(f"{pick(ABOUT_CODE)}\n\n```python\n{pick.fill(pick.rng.choice(SNIPPETS))}\n```")
    asked = f"{pick(CODED)} {' '.join(pick.some(DEMANDS, pick.rng.randint(0, 3)))}"
    return user(asked.strip())


def math(pick: Pick) -> Chat:
    asked = f"{pick(PROBLEMS)} {' '.join(pick.some(SHOWN, pick.rng.randint(0, 2)))}"
    return user(asked.strip())


def summarise(pick: Pick) -> Chat:
    # As long as a letter or a page: a draft has to be good at such positions, too.
    facts = [*pick.some(EVENTS, 13), *pick.some(VIEWS, 9)]
    pick.rng.shuffle(facts)
    facts = facts[: pick.rng.randint(4, 20)]
    cut = pick.rng.randint(3, 5)
    blocks = [" ".join(facts[at : at + cut]) for at in range(0, len(facts), cut)]
    text = "\n\n".join([pick(HEADS), *blocks])
    task = pick(SHORTER)
    return user(f"{task}\n\n{text}" if pick.maybe(0.5) else f"{text}\n\n{task}")


KINDS: dict[str, Callable[[Pick], Chat]] = {
    "chat": chat,
    "code": code,
    "math": math,
    "summarise": summarise,
}

SUBJECTS = {
    "topic": parts("""
        tides
        photosynthesis
        the printing press
        black holes
        vaccines
        the Roman Republic
        whale migration
        neural networks
        interest rates
        volcanoes
        the human heart
        jazz
        the Olympic Games
        beekeeping
        genetics
        sea level rise
        electric cars
        sleep
        chess openings
        coffee roasting
        rainforests
        gravity
        public libraries
        bicycle maintenance
        earthquakes
        inflation
        the early Internet
        dinosaurs
        haiku
        job interviews
        house cats
        composting
        railways
        glaciers
        bridges
        recycling
        the Silk Road
        antibiotics
        satellites
        meditation
        bread baking
        medieval castles
        coral reefs
        budgeting
        storytelling
        solar panels
        migraines
        wind instruments
        city parks
        knitting
        deserts
        remote work
        fermentation
        telescopes
        running shoes
        the water cycle
        supply chains
        house plants
        time zones
        first aid
        mountain weather
        negotiation
        owls
        concrete
        maps
        language learning
        friendship
        fire safety
        elections
        clocks
        tea
        robots"""),
    "place": parts("""
        Northfield
        the harbour district
        the town library
        Lakeside School
        the regional hospital
        the Miller farm
        the old station
        Riverton
        the science museum
        the village of Elm
        the bus depot
        the city theatre
        the sports centre
        Greenhill
        the paper mill
        the airport
        the botanical garden
        the county court
        the ferry terminal
        the university
        the weekly market
        Eastport
        the youth club
        the water works"""),
    "person": parts("""
        Anna
        Mr Okafor
        Lena
        Dr Singh
        Paul
        Ms Laurent
        Omar
        Grandmother Ruth
        Kenji
        the mayor
        the director
        Sofia
        the head nurse
        Victor
        the caretaker
        Mei
        the treasurer
        Jonas
        the architect
        Carla
        the coach
        Amir
        the librarian
        Nina"""),
    "thing": parts("""
        apples
        tickets
        notebooks
        bricks
        candles
        stamps
        eggs
        chairs
        marbles
        posters
        bottles
        seedlings
        pencils
        cakes
        lamps
        shirts"""),
    "language": parts("""
        Rust
        Python
        JavaScript
        C
        Java
        Go
        TypeScript
        C++
        Ruby
        SQL
        Bash
        Kotlin
        Python
        Python
        JavaScript
        PHP"""),
    "task": parts("""
        reverses the words of a sentence
        checks whether a number is prime
        returns the n-th Fibonacci number
        reads a CSV file and prints the average of each column
        counts the words of a text
        removes duplicates from a list and keeps the order
        merges two dictionaries
        sorts a list of people by age and then by name
        finds the longest common prefix of some strings
        validates an e-mail address
        converts temperatures between Celsius and Fahrenheit
        checks whether brackets are balanced
        finds the shortest path in a grid
        flattens a nested list
        computes the greatest common divisor
        draws a bar chart with text characters
        rotates a matrix by ninety degrees
        lists the files of a folder by size
        groups words that are anagrams of each other
        downloads a page and lists its links
        simulates a bank account with deposits and withdrawals
        implements a stack and a queue
        finds the missing number of a sequence
        converts Roman numerals to integers
        compresses a string by run lengths
        implements binary search
        prints a calendar of a month
        keeps a to-do list in a file
        computes the median of a stream of numbers
        plays tic-tac-toe against the user
        generates random passwords
        inserts and finds values in a binary search tree"""),
}

ASKED = """
    What is {topic}?
    Explain {topic} to a ten-year-old.
    Why does {topic} matter today?
    Compare {topic} and {topic2}.
    Write a poem about {topic}.
    Write an essay about {topic}.
    List {n} facts about {topic}.
    Describe the history of {topic}.
    What are the advantages and disadvantages of {topic}?
    Give me some tips on {topic}.
    Tell me a story about {person}, who knows everything about {topic}.
    Write an e-mail to {person} about {topic}.
    Make a quiz with five questions about {topic}.
    Write a dialogue between {person} and {person2} about {topic}.
    What are common mistakes that beginners make with {topic}?
    Plan a lesson on {topic} for a class at {place}.
    Which books would you recommend to somebody who is interested in {topic}?
    Write a speech that {person} could give at {place} about {topic}.
    How are {topic} and {topic2} connected?
    I have a free weekend and want to learn about {topic}. Where do I begin?
    What would the world be like without {topic}?
    Write a product description for a board game about {topic}.
    Help me to prepare for an exam on {topic}.
    Write a letter of complaint to {place}.
    Suggest a day trip from {place} for a family with two children.
    Write a short biography of {person}, an expert on {topic}.
    What is the difference between {topic} and {topic2}?
    Write a press release: {place} opens an exhibition on {topic}.
    How do I talk to {person} about {topic} without starting a quarrel?
    Give step-by-step advice to somebody who is new to {topic}."""

WISHES = """
    Use simple words.
    Answer in about {m} words.
    Begin with the most important point.
    Give an example for each point.
    Use a table where it helps.
    End with a question for the reader.
    Keep it friendly.
    Write it as a numbered list.
    Mention what is often misunderstood.
    Explain every technical term.
    Keep a formal tone.
    Say which parts are uncertain.
    Add a short summary at the end.
    Use headings."""

ROLES = """
    You are a patient teacher.
    You answer in short sentences.
    You are an assistant of {place}. Help visitors politely.
    You are an expert on {topic} who avoids jargon.
    You are a helpful writing coach."""

REPLIES = """
    Sure, I can help with that. What would you like to know first?
    That depends on how much time you have.
    Of course. Here is the short answer: it is simpler than most people think.
    There are two ways to look at it, and both have their merits."""

FOLLOWING = """
    Please go on, with more detail.
    I would like the long version, with examples.
    What does this have to do with {topic}?
    Explain the first way in detail.
    Make a list of the steps, please.
    Can you say that again for a beginner?"""

CODED = """
    Write a {language} function that {task}.
    Write a {language} program that {task}.
    Show me how to write code in {language} that {task}.
    Write a {language} class that {task}.
    I need a small {language} script that {task}.
    Write unit tests in {language} for a function that {task}.
    Explain step by step how a {language} function that {task} works, and show it.
    What is an efficient algorithm for code that {task}? Give it in {language}.
    Port this idea from {language} to {language2}: a function that {task}.
    Write a {language} program that {task} and also {task2}."""

DEMANDS = """
    Add comments.
    Handle empty input.
    Explain the time complexity.
    Do not use any library.
    Show an example of its use.
    Write a docstring.
    Use type annotations.
    Raise an error where the input is wrong.
    Explain each line afterwards.
    Include tests.
    Read the input from the command line."""

ABOUT_CODE = """
    Explain what this code does.
    Find the bug in this code and correct it.
    Write tests for this function.
    Make this code shorter.
    Rewrite this in {language}.
    Add error handling and comments to this code.
    What is printed here, and why?"""

SNIPPETS = (
    "def total(prices, tax={n}):\n    result = 0\n    for price in prices:\n"
    "        result += price * (1 + tax / 100)\n    return round(result, 2)",
    "def find(items, wanted):\n    for i in range(len(items) - 1):\n"
    "        if items[i] == wanted:\n            return i\n    return -1\n\n"
    "print(find([{n}, {m}, {big}], {big}))",
    "class Counter:\n    counts = {}\n\n    def add(self, word):\n"
    "        self.counts[word] = self.counts.get(word, 0) + {n}\n\n"
    "    def most(self):\n        return max(self.counts, key=self.counts.get)",
    "numbers = [{n}, {m}, {big}]\nsquares = [x * x for x in numbers if x % 2]\n"
    "print(sum(squares), max(numbers))",
    "def power(base, exponent):\n    if exponent == 0:\n        return 1\n"
    "    half = power(base, exponent // 2)\n    return half * half\n\nprint(power({n}, 5))",
    "with open('{big}.txt') as file:\n    lines = file.readlines()\n"
    "for number, line in enumerate(lines):\n    if len(line) > {m}:\n        print(number, line)",
)

PROBLEMS = """
    What is {n} + {m}?
    What is {n} times {m}?
    What is {big} divided by {n}, to two places?
    Solve {n}x + {m} = {big}.
    Solve the system {n}x + y = {m} and x - {n2}y = {n3}.
    {person} has {m} {thing} and buys {n} more. How many are there now?
    {person} sells {n} {thing} for {m} cents each. How much money is that?
    A train covers {big} km in {n} hours. What is its speed?
    A rectangle is {n} cm wide and {m} cm long. Find its area and its perimeter.
    What is {n} % of {big}?
    {person} shares {big} {thing} among {n} friends. How many does each get, and how many are left?
    Find the average of {n}, {m}, {n2} and {m2}.
    A bag holds {n} red and {m} blue {thing}. What is the probability of drawing a red one?
    Find the derivative of {n}x^3 + {m}x - {n2}.
    Factor x^2 + {n}x + {m}, or show that it has no real roots.
    What is the sum of the whole numbers from {n} to {m}?
    The price of {thing} rises from {n} to {m}. By how many per cent is that?
    A circle has a radius of {n} cm. What are its area and its circumference?
    {person} walks {n} km every day for {m} days, {person2} only half as far. How far do both walk?
    Is {big} divisible by {n}?
    Find the greatest common divisor and the least common multiple of {m} and {big}.
    A tank loses {n} litres an hour. When are {big} litres gone?
    Two numbers have the sum {m} and the difference {n}. Which are they?
    How many ways are there to choose 3 of {n} {thing}?
    Convert {big} minutes to days, hours and minutes.
    Integrate {n}x^2 + {m} from 0 to {n2}.
    {person} saves {m} dollars a month at {n} % interest a year. How much is that after two years?
    Write {big} in binary.
    The angles of a triangle are in the ratio 1 : {n} : {n2}. How large are they?
    Prove that the product of {n} and any even number is even."""

SHOWN = """
    Show your work.
    Explain each step.
    Check the result.
    Explain it to a child.
    Give the result as a fraction as well.
    Then make up a similar exercise and solve it.
    State which rule you use.
    Also describe a common mistake."""

HEADS = """
    News from {place}
    Minutes of the meeting at {place}
    Report on {topic}
    Dear {person},
    A note about {topic} and {topic2}
    Letter to the editor
    {place}: the year in review"""

EVENTS = """
    The council of {place} approved a budget of {big} thousand for {topic}.
    The old bridge near {place} will be closed for {n} weeks while its bearings are replaced.
    {person} counted {big} visitors in {n} days, more than in any year before.
    On Monday the power failed for {m} minutes, and {n} deliveries of {thing} were late.
    {person} told the meeting that {topic} would cost {m} thousand more than planned.
    A survey of {big} households found that {m} per cent had never heard of {topic}.
    The first {n} classes on {topic} were full within {m} hours.
    Heavy rain flooded the cellar of {place}, and {big} {thing} had to be moved by hand.
    {person} and {person2} will repair the roof before winter.
    The pump broke down twice in {n} days, so the supplier sent {m} spare parts.
    {place} has ordered {big} {thing}, of which {m} were damaged when they arrived.
    The working group met {n} times and wrote a paper of {m} pages on {topic}.
    After {n} years {person} is leaving {place} and moves to {place2}.
    Tickets for the evening on {topic} cost {n} each, and children pay half.
    The new timetable saves {n} minutes on the way from {place} to {place2}.
    {person} found an error in the figures for {topic}: {m} had been entered twice.
    Since spring, {n} volunteers have looked after the garden of {place}.
    The prize for the best project went to {person}, who had studied {topic} for {n} months.
    Because of the strike, {m} of {big} appointments were moved to the following week.
    The team tested {n} methods and kept the one that needed the fewest {thing}."""

VIEWS = """
    {person} is not convinced and asks for a second opinion.
    Many residents say that nobody had asked them.
    Critics answer that {topic} is a question of habits rather than of money.
    This sounds like a small change, but it took years to agree on.
    {person} called the result encouraging, though far from final.
    It is still unclear who will pay for the rest.
    The younger members want to go faster; the older ones remember how the last attempt ended.
    Nobody was hurt, and most of the damage was covered by insurance.
    Those who work with {topic} every day see it differently.
    The next decision is due in {n} weeks.
    What works at {place} need not work elsewhere.
    If that succeeds, {place} will follow next year.
    There was applause, but also some laughter at the back of the room.
    The weather helped, which will not be so every time."""

SHORTER = """
    Summarize this text in one sentence.
    Summarize the text in {n} bullet points.
    Rewrite this for children.
    List the main points and the open questions.
    What does this text say about {person}?
    Write a headline and a short abstract for it.
    Make a table of the numbers that occur in the text.
    Turn this into a short e-mail to a colleague.
    Summarize this and add what should be done next.
    Say in your own words what happened."""
