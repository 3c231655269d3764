"""A book of thirteen short pages about a household: large enough for statistics, small enough to embed in a moment."""

from __future__ import annotations

from pathlib import Path

PAGES: dict[str, list[tuple[str, str]]] = {
    "module-1-garden/01-soil.md": [
        ("Soil", "Soil holds water and air between its grains, and worms keep it loose all year."),
        ("Compost", "Compost is made of kitchen waste and leaves that rot in a heap for about nine months."),
        (
            "Mulch",
            "Mulch is a layer of straw on the bed; it keeps weeds down and the ground moist in summer.",
        ),
    ],
    "module-1-garden/02-seeds.md": [
        ("Seeds", "Seeds are stored in paper bags, dry and dark, and most of them last for three years."),
        ("Sowing beans", "Beans are sown after the last frost, two fingers deep, in rows along a trellis."),
        (
            "Pricking out",
            "Seedlings are moved to pots of their own as soon as they have two pairs of leaves.",
        ),
    ],
    "module-1-garden/03-pests.md": [
        ("Pests", "Aphids sit under the leaves and are washed off with a sharp jet of water."),
        ("Slugs", "Slugs come out at night; a board on the ground collects them until morning."),
        (
            "Ladybirds",
            "Ladybirds and their larvae eat hundreds of aphids, so leave them a heap of twigs for the winter.",
        ),
    ],
    "module-1-garden/04-roses.md": [
        ("Roses", "Roses are cut back in March, above an eye that looks outwards."),
        ("Grafting", "A rose is grafted on a wild root in July, with a cut in the shape of a T."),
    ],
    "module-2-kitchen/01-bread.md": [
        ("Bread", "Knead the dough until it is smooth, then let it rise in a warm place."),
        ("Leaven", "Leaven is flour and water that have fermented for five days; feed it every evening."),
        ("The oven", "Preheat the oven with a stone in it, and give steam for the first ten minutes."),
    ],
    "module-2-kitchen/02-soup.md": [
        ("Soup", "A clear soup begins with cold water and bones, and must never boil."),
        ("Vegetable stock", "Leeks, carrots and celery are fried slowly before the water is poured on."),
        ("Dumplings", "Dumplings of semolina float when they are done, after about a quarter of an hour."),
    ],
    "module-2-kitchen/03-jam.md": [
        (
            "Jam",
            "Fruit and sugar are boiled for four minutes, and a drop on a cold plate shows whether it sets.",
        ),
        ("Jars", "Jars and lids are boiled first, filled to the brim, closed and turned upside down."),
    ],
    "module-2-kitchen/04-knives.md": [
        ("Knives", "A knife is sharpened on a wet stone, at an angle of about twenty degrees."),
        ("Cutting boards", "Boards of maple are oiled twice a year and never put into the dishwasher."),
    ],
    "module-3-workshop/01-wood.md": [
        ("Wood", "Boards are dried for a year per centimetre before they are planed."),
        ("Glue", "Hide glue is warmed in a double pot; the joint is pressed overnight."),
        ("Dovetails", "Dovetails are marked with a gauge, sawn on the waste side and cleaned with a chisel."),
    ],
    "module-3-workshop/02-bicycles.md": [
        (
            "Bicycles",
            "A chain that is stretched by one percent is replaced before it wears down the sprockets.",
        ),
        (
            "Brakes",
            "Brake pads are adjusted so that they touch the rim together, two millimetres below its edge.",
        ),
        (
            "Flat tyres",
            "Take the tube out, find the hole in a bowl of water, roughen it and press the patch on.",
        ),
    ],
    "module-3-workshop/03-paint.md": [
        ("Paint", "Old paint is sanded, dust is wiped off with a damp cloth, and a primer comes first."),
        ("Brushes", "Brushes are washed at once, with soap for emulsion and with spirit for oil paint."),
    ],
    "module-3-workshop/04-electricity.md": [
        ("Electricity", "Switch off the fuse and test that there is no voltage before you open a socket."),
        ("Lamps", "The brown wire goes to the switch, the blue one straight to the lamp."),
    ],
}


def write_library(root: Path) -> Path:
    """Write the book; every section is long enough for a passage of its own."""
    filler = {
        "garden": "Old gardeners note in a diary what they did each week, what the weather was like, which bed had which plants, and "
        "how much they picked; such notes are worth more than any rule, because no two plots, slopes and summers are alike.",
        "kitchen": "Good cooks taste at every step, salt late and little, keep their table clear while they work, and write the quantities "
        "of a dish that has turned out well on the inside of the cupboard door, where it can be read with wet hands.",
        "workshop": "Careful people measure twice, wear glasses, clamp the piece before they touch a blade, sweep the floor in the "
        "evening, and hang every tool back on its outline on the wall, so that a missing one is noticed before the light goes out.",
    }
    for name, sections in PAGES.items():
        module = next(module for module in filler if module in name)
        blocks = [
            f"{'#' if number == 0 else '##'} {heading}\n\n{text} {filler[module]}\n"
            for number, (heading, text) in enumerate(sections)
        ]
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(blocks), "utf-8")
    (root / "welcome.md").write_text(
        "# Welcome\n\nThis book is about the garden, the kitchen and the workshop of a house.\n", "utf-8"
    )
    return root
