"""The words of the mini-world: people, things, places. Constants only; which of them meet is decided by a seed."""

from __future__ import annotations

PEOPLE = (
    "Ada", "Amir", "Anna", "Ben", "Bella", "Carl", "Chen", "Clara", "Dana", "David", "Elif", "Emma", "Eric",
    "Eva", "Felix", "Finn", "Grace", "Hana", "Hugo", "Ida", "Ivan", "Jack", "Jana", "Kai", "Karim", "Lena",
    "Leo", "Lily", "Lucy", "Mara", "Max", "Mia", "Nadia", "Nico", "Noah", "Nora", "Olga", "Omar", "Oscar",
    "Paul", "Priya", "Rosa", "Sam", "Sara", "Tara", "Theo", "Tom", "Vera", "Yuki", "Zoe",
)  # fmt: skip

OBJECTS = (
    "apples", "balls", "bananas", "beads", "books", "bottles", "boxes", "buttons", "cakes", "candles", "cards",
    "coins", "cookies", "cups", "eggs", "flowers", "keys", "kites", "lamps", "lemons", "marbles", "oranges",
    "pears", "pencils", "pens", "plants", "plates", "plums", "ribbons", "rocks", "seeds", "shells", "spoons",
    "stamps", "stars", "stickers", "stones", "tickets", "toys", "tulips",
)  # fmt: skip

CITIES = (
    "Alden", "Arvik", "Bastow", "Belmar", "Corvale", "Dorran", "Elmira", "Fairlo", "Galway", "Harrow", "Ilvesk",
    "Jarna", "Kestrel", "Lorient", "Marden", "Norwick", "Oakham", "Pelham", "Quarry", "Ravenna", "Selby",
    "Torvo", "Ulster", "Verona", "Wexford", "Yarrow", "Zadar", "Ashby", "Brono", "Calder", "Denby", "Esker",
)  # fmt: skip

JOBS = (
    "baker", "barber", "brewer", "builder", "butcher", "carpenter", "chemist", "clerk", "cook", "dentist",
    "doctor", "driver", "farmer", "fisher", "gardener", "guard", "hunter", "judge", "lawyer", "miner", "nurse",
    "painter", "pilot", "plumber", "poet", "potter", "sailor", "singer", "smith", "tailor", "teacher", "weaver",
)  # fmt: skip

PETS = (
    "badger", "bear", "camel", "canary", "cat", "cow", "crow", "deer", "dog", "donkey", "duck", "eagle", "ferret",
    "fox", "frog", "goat", "goose", "hamster", "hare", "horse", "lizard", "mouse", "otter", "owl", "parrot",
    "pig", "pony", "rabbit", "sheep", "snake", "swan", "turtle",
)  # fmt: skip

FOODS = (
    "beans", "bread", "butter", "cabbage", "carrots", "cheese", "cherries", "corn", "cream", "dates", "figs",
    "garlic", "grapes", "ham", "honey", "jam", "leeks", "lentils", "mango", "melon", "mint", "noodles", "nuts",
    "olives", "onions", "pasta", "peas", "pepper", "rice", "salad", "soup", "toast",
)  # fmt: skip

# Invented names are a head and a tail, so that a paragraph of any length finds subjects it has not used yet.
HEADS = (
    "Bal", "Cor", "Dun", "Fen", "Gar", "Hol", "Jor", "Kel", "Lum", "Mor", "Nal", "Pel", "Quin", "Ros", "Sol",
    "Tar", "Ulm", "Var", "Wen", "Zan",
)  # fmt: skip
TAILS = ("bek", "dis", "eth", "fin", "gor", "ion", "lo", "mir", "nas", "ova", "rik", "sa", "tun", "vey", "wick")
MIDDLES = ("a", "e", "i", "o", "u", "ae", "ia", "or", "en", "ul")
