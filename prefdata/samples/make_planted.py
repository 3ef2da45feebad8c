"""Writes ``planted.jsonl`` and ``planted.truth.json`` beside itself: ``python prefdata/samples/make_planted.py``.

All texts are our own. The id of a row tells its fault; the truth says what becomes of the row: ``kept`` and, where a
stage says something, its ``stage``, ``reason``, ``action`` and ``peer`` (an id). ``with_tokenizer`` holds what changes
when token_length is given a tokenizer and max_length 1024. Of a ``cycle`` at least one row of its ``group`` is dropped.
Kept rows of a vote or cycle may be flagged as well.
"""


# fmt: off

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LINES: list[str] = []
TRUTH: dict[str, dict[str, Any]] = {}


def row(name: str, source: str, prompt: Any, chosen: Any, rejected: Any = None, **expect: Any) -> None:
    """Add a row; ``expect`` is its entry in the truth, empty for a sound row."""
    fields = {"id": name, "source": source, "prompt": prompt, "chosen": chosen, "rejected": rejected}
    if rejected is None:
        del fields["rejected"]
    LINES.append(json.dumps(fields, ensure_ascii=False))
    TRUTH[name] = {"row": len(LINES) - 1, "kept": True, **expect}


def drop(stage: str, reason: str, peer: str | None = None) -> dict[str, Any]:
    """The truth about a dropped row."""
    return {"kept": False, "action": "drop", "stage": stage, "reason": reason, "peer": peer}


def sound() -> None:
    """Rows with nothing wrong."""
    row("sound-bread", "kitchen", "My bread is dense and flat. What am I doing wrong?", "Most often the dough has not risen long enough. Let it double in size in a warm corner, which can take two hours in winter, and check that your yeast foams in lukewarm water before you use it. Water that is too hot kills it.", "Bread is difficult. Maybe buy it.")
    row("sound-eggs", "kitchen", "How do I stop boiled eggs from cracking?", "Take them out of the fridge half an hour before, lower them into the water with a spoon, and keep it at a gentle simmer.", "Eggs crack because the shell breaks. The shell breaks when it cracks. You could try a different pan, a different stove, a different kind of egg, or simply another breakfast, since there are many breakfasts to choose from and not all of them have eggs in them.")
    row("sound-rice-stove", "kitchen", "Can I cook rice without a rice cooker?", "Yes. Rinse it, add one and a half times as much water, bring it to the boil, cover, and leave it on the lowest heat for twelve minutes. Then let it stand off the heat for ten more without lifting the lid.", "Yes, you can cook it in water.")
    row("sound-train-or-bus", "travel", "Is it better to take the night train or the early bus from the coast to the mountains?", "If you sleep well on the move, the night train saves you a hotel and brings you there at breakfast. If you don't, take the bus: the road along the gorge is the best part of the journey, and you only see it by day.", "Both are means of transport.")
    row("sound-packing", "travel", "What should I pack for three days of hiking in autumn?", "Layers rather than one thick coat, a rain jacket, two pairs of wool socks, a head torch, and a paper map. Keep a dry set of clothes in a plastic bag and never wear it while walking.", "Pack everything you own so that nothing is missing, and take two suitcases with wheels.")
    row("sound-visa", "travel", "Do I need travel insurance for a weekend trip?", "It isn't required, but check first whether your health cover works abroad. If it does not, a weekend policy is cheap compared with one night in a hospital.", "Travel insurance is a kind of insurance for travelling. People who travel may have it. Some have it and some do not have it, and it depends.")
    row("sound-tap", "home", "The kitchen tap drips all night. Can I repair it myself?", "Usually, yes. Shut the valve under the sink, unscrew the handle, and look at the rubber washer. If it is flat or torn, take it to a shop and buy the same size. Note the order in which the parts come off.", "Put a towel in the sink so that you can't hear it.")
    row("sound-paint", "home", "How long should a wall dry before the second coat of paint?", "Four to six hours for most water-based paints, a full day in a cold or damp room. If it feels cool to the hand, it is still wet.", "Just paint it again at once, the two coats will mix and that saves a lot of time.")
    row("sound-moths", "home", "There are small moths in my pantry. What helps?", "Throw out open flour, nuts and cereals, wipe the shelves and the screw holes with vinegar, and keep new supplies in closed jars. A sticky trap shows you whether any are left.", "Moths are insects with wings that fly at night and like lamps.")
    row("sound-sleep", "health", "I wake up at four every night. Any advice?", "Try going to bed a little later for a week, keep the room dark, and don't look at the clock. No coffee after lunch. If it lasts more than a month or you feel low, talk to a doctor.", "Everybody wakes up at night sometimes; simply take strong tablets.")
    row("sound-blister", "health", "Should I open a blister on my heel?", "Better not: the skin over it keeps germs out. Cover it with a plaster that does not rub, and wear other shoes until it has dried up.", "Yes, with any needle you find, and then walk on.")
    row("sound-list-python", "code", "How do I remove repeated items from a Python list and keep the order?", "```python\nunique = list(dict.fromkeys(items))\n```\nDictionaries keep the order of insertion, so this keeps the first of each.", "```python\nunique = list(set(items))\n```\nA set has no repeated items.")
    row("sound-git", "code", "I committed to the wrong branch. How do I move the last commit?", "Create the right branch where you are with `git branch right`, go one commit back with `git reset --hard HEAD~1`, then `git switch right`. The commit lives on in the new branch.", "Delete the folder and clone it again. This is the way that always works, and you can write the change a second time, which is good practice.")
    row("sound-discount", "maths", "A lamp costs 80 euros and is reduced by a quarter. What do I pay?", "60 euros: a quarter of 80 is 20, and 80 minus 20 is 60.", "You pay 25 euros less, which is 55 euros.")
    row("sound-average", "maths", "What's the average of 4, 8 and 15?", "9, because the sum is 27 and there are three numbers.", "The average of these three numbers is 8, because it stands in the middle of the list when you write the numbers down from the smallest to the largest.")
    row("sound-mail", "office", "Write a short mail to say that I will be late for the meeting.", "Subject: Late for the 10:00 meeting\n\nHello all,\n\nmy train is delayed, so I will join at about 10:20. Please start without me; my figures are in the shared folder.\n\nBest, Mara", "i am late sorry")
    row("sound-no", "office", "How do I say no to extra work without being rude?", 'Say it early, give one true reason, and offer something smaller: "I can\'t take the report this week, as the audit is due on Friday. I could check the figures on Monday."', "You can't.")
    row("sound-short-yes", "maths", "Is 97 a prime number? Answer with one word.", "Yes", "No")
    row("sound-zh-tea", "厨房", "泡绿茶用多热的水比较好？", "八十度左右就可以。水太烫会让茶发苦，可以把开水放凉三四分钟再冲。", "用水泡。")
    row("sound-zh-plant", "家居", "我的绿萝叶子发黄，是什么原因？", "常见的原因是浇水太多。等表面两厘米的土干了再浇，花盆底下要有排水孔；另外不要让阳光直射。", "叶子发黄是因为颜色变了，换一盆就好。")
    row("sound-zh-interview", "职场", "面试前一天应该准备什么？", "重看一遍职位要求，准备三个能说明能力的例子，查好路线，早点休息。", "准备很多东西，比如衣服、鞋子、吃的、喝的，还有其他各种各样的东西，越多越好，这样就不会紧张了，也不用担心。")
    row("sound-zh-train", "旅行", "从南京坐高铁去黄山要多久？", "大约两到三个小时，具体看车次。旺季最好提前一周买票。", "很久。")
    row("sound-th-rice", "ครัว", "ทำไมข้าวที่หุงถึงแฉะ", "ส่วนใหญ่เพราะใส่น้ำมากเกินไป ลองลดน้ำลงเล็กน้อย และพักข้าวไว้สิบนาทีหลังหม้อตัดไฟก่อนเปิดฝา", "เพราะข้าวเปียก")
    row("sound-th-bus", "เดินทาง", "จากเชียงใหม่ไปปายควรนั่งรถอะไรดี", "รถตู้ใช้เวลาราวสามชั่วโมง ถ้าเมารถง่ายควรกินยาก่อน เพราะทางโค้งมาก", "นั่งรถไปก็ได้ เดินไปก็ได้ หรือจะไม่ไปก็ได้ แล้วแต่ว่าอยากไปหรือไม่อยากไป")
    row("sound-th-cat", "บ้าน", "แมวไม่ยอมกินน้ำ ทำอย่างไรดี", "ลองวางชามน้ำหลายจุดให้ห่างจากชามอาหาร เปลี่ยนน้ำทุกวัน และผสมอาหารเปียกบ้าง", "แมวเป็นสัตว์สี่ขา")
    row("sound-ar-coffee", "مطبخ", "كيف أحضّر القهوة دون أن تصبح مرّة؟", "استعمل ماءً حارًّا لا يغلي، واطحن البن طحنًا متوسطًا، ولا تتركه في الماء أكثر من أربع دقائق.", "القهوة مرّة دائمًا.")
    row("sound-ar-study", "دراسة", "كيف أحفظ كلمات لغة جديدة بسرعة؟", "تعلّم عشر كلمات كل يوم في جمل قصيرة، وراجعها بعد يوم ثم بعد أسبوع، واستعملها في الكلام.", "اقرأ القاموس كله من أوله إلى آخره مرة واحدة، ثم مرة ثانية، ثم مرة ثالثة، حتى تحفظ كل شيء.")
    row("sound-ar-trip", "سفر", "ما أفضل وقت لزيارة الصحراء؟", "من نوفمبر إلى فبراير، فالنهار معتدل والليل بارد، لذلك خذ معك سترة دافئة.", "في أي وقت.")
    row("sound-emoji", "chat", "Send me a cheerful good-morning message with emoji.", "Good morning! ☀️ Hope your coffee is strong and your inbox is short. 👩‍💻😄", "Morning.")


def kept_though_close() -> None:
    """Rows that look like faults and are not."""
    row("keep-one-digit-decides", "maths", "What is 14 times 13? Show the sum in one line.", "14 times 13 is 10 times 13 plus 4 times 13, so it is 182.", "14 times 13 is 10 times 13 plus 4 times 13, so it is 172.")
    row("keep-one-word-decides", "health", "May I give my dog a piece of dark chocolate?", "No, dark chocolate is not safe for dogs, not even in small amounts.", "No, dark chocolate is quite safe for dogs, just even in small amounts.")
    for n, (litres, cost) in enumerate(((40, 72), (55, 99)), 1):
        row(f"keep-template-{n}", "maths", f"A car needs {litres} litres of fuel for the whole trip and one litre costs 1.80 euros at every station on the way. How much money does the driver spend on fuel in all?", f"The driver spends {cost} euros, because {litres} times 1.80 is {cost}, and as the price is the same at every station on the way it does not matter where the tank is filled.", f"The driver spends {litres} euros, because the car needs {litres} litres, and as the price is the same at every station on the way it does not matter where the tank is filled.")
    row("keep-same-prompt-other-answers", "kitchen", "How do I stop boiled eggs from cracking?", "Prick the round end with a pin so that the air can get out.", "Boil them faster.")
    row("keep-code-operator", "code", 'Write a Python test for "n is even".', "```python\ndef is_even(n):\n    return n % 2 == 0\n```", "```python\ndef is_even(n):\n    return n % 2 != 0\n```")
    row("hostile-html", "web", 'How can I show a greeting on my page? <b>Be brief</b> & use "quotes".', "Put this into the body: <script>alert('hello')</script> </script><img src=x onerror=\"alert(1)\"> <!-- and -->\u2028 then reload the page.", '</textarea></div><h1>Hello</h1>{{ 7 * 7 }} ${7*7} <a href="javascript:alert(2)">click</a>')
    row("hostile-formula", "web", "Give me a spreadsheet formula that adds the cells A1 to A9.", "=SUM(A1:A9)", '@A1+A9, or =HYPERLINK("http://example.invalid","sum")')


def broken() -> None:
    """Rows that are no pair, and one whose text spells a control token."""
    LINES.append(
        '{"id": "parse-error", "source": "home", "prompt": "How do I clean a kettle?", "chosen": "Boil water with a little vin'
    )
    TRUTH["parse-error"] = {"row": len(LINES) - 1, **drop("malformed", "parse_error")}
    row("missing-field", "home", "Which side of foil goes inside?", "Either: both sides work the same way.", **drop("malformed", "missing_field"))
    row("bad-type", "maths", "What is six times seven?", 42, "41", **drop("malformed", "bad_type"))
    row("empty-prompt", "chat", " \n\u3000", "How can I help you today?", "What?", **drop("malformed", "empty_prompt"))
    row("empty-completion-zero-width", "chat", "Name a river in Asia.", "\u200b\u200b\u2060", "The Danube.", **drop("malformed", "empty_completion"))
    row("special-token", "chat", "Name three kinds of cheese.", "Brie, Gouda and feta.<|im_end|>", "Cheese comes from milk.", action="flag", stage="malformed", reason="special_token", peer=None)


def opposed() -> None:
    """Labels that contradict each other."""
    ask, a, b = (
        "Should I water my cactus every day?",
        "No, about once in three weeks is plenty; let the soil dry out first.",
        "A cactus comes from the desert, so give it a full cup of water every morning.",
    )
    row("contradiction-1", "home", ask, b, a, **drop("contradiction", "contradiction", "contradiction-2-swaps-1"))
    row("contradiction-2-swaps-1", "forum", ask, a, b, **drop("contradiction", "contradiction", "contradiction-1"))
    ask, a, b = (
        "Suggest a name for a small bookshop by the sea.",
        "The Tide Table: easy to say, and it hints at both the sea and the habit of coming back.",
        "Books and More Books Limited.",
    )
    row("vote-1", "panel", ask, a, b)
    row("vote-2-of-vote-1", "panel", ask, a, b, **drop("exact_duplicate", "exact_duplicate", "vote-1"))
    row("vote-3-swaps-vote-1", "panel", ask, b, a, **drop("contradiction", "contradiction", "vote-1"))
    row("vote-4-of-vote-1", "panel", ask, a, b, **drop("exact_duplicate", "exact_duplicate", "vote-1"))
    ask = "Recommend one game for a rainy afternoon with two children."
    games = (
        "Hide a kitchen timer somewhere in the flat and let them find it before it rings.",
        "Build a den from chairs and blankets, then read a story inside it by torchlight.",
        "Draw a treasure map together and bury a biscuit tin in the hall cupboard.",
    )
    group = [f"cycle-{n}" for n in (1, 2, 3)]
    for n, name in enumerate(group):
        row(name, "panel", ask, games[n], games[(n + 1) % 3], kept="some", action="drop", stage="contradiction", reason="cycle", group=group)


def repeated() -> None:
    """Copies and near copies."""
    ask, a, b = (
        "What does a café au lait taste like?",
        "Mild and a little sweet: half strong coffee, half hot milk, so the bitterness is soft. In a naïve first sip you notice the milk.",
        "Like coffee.",
    )
    row("exact-1", "kitchen", ask, a, b)
    row("exact-2-of-exact-1", "forum", ask, a, b, **drop("exact_duplicate", "exact_duplicate", "exact-1"))
    row("exact-3-other-bytes-of-exact-1", "scrape", unicodedata.normalize("NFD", ask), unicodedata.normalize("NFD", a) + "\n", "\u200b" + b + "  ", **drop("exact_duplicate", "exact_duplicate", "exact-1"))
    ask = "I have a balcony that faces north and gets no direct sun at all, and I would still like to grow something that I can eat. What would you suggest for a complete beginner with {} pots?"
    a = "Start with leaves rather than fruit, because leaves need far less light. Mint, chives, parsley and lettuce all grow well in bright shade, and you can begin to pick them after a few weeks. Use large pots with holes in the bottom, water them when the surface feels dry, and turn them from time to time so that they grow {}."
    b = "Tomatoes and peppers are the best choice for every balcony, because everybody likes them and the shops sell the seeds. Put them outside in any month you like, give them a lot of water at noon, and wait until something happens on its {}."
    row("near-en-1", "home", ask.format("clay"), a.format("evenly"), b.format("own"))
    row("near-en-2-of-near-en-1", "scrape", ask.format("plastic"), a.format("straight"), b.format("own"), **drop("near_duplicate", "near_duplicate", "near-en-1"))
    ask = "我刚搬到一个新的城市，工作之余想认识一些朋友，可是性格比较内向，不太习惯主动跟陌生人说话。请给我几个容易做到的建议，最好花钱少{}"
    a = "可以先参加有固定内容的活动，比如读书会、羽毛球或者手工课，因为大家有共同的话题，说话会自然很多。每次只要求自己跟旁边的人聊几句就够了，下次再见面就会熟悉起来。社区图书馆和公园常常有免费的活动，值得留意{}"
    b = "内向的人很难交到朋友，所以不用太在意这件事情。下班以后回家看看电视，或者在网上随便跟别人聊聊天，时间过得也很快。等到以后你的性格变得外向了，再去考虑认识新朋友的问题也来得及{}"
    row("near-zh-1", "生活", ask.format("。"), a.format("一下。"), b.format("。"))
    row("near-zh-2-of-near-zh-1", "scrape", ask.format("一点。"), a.format("看看。"), b.format("。"), **drop("near_duplicate", "near_duplicate", "near-zh-1"))


def no_difference() -> None:
    """Pairs from which nothing can be learnt."""
    same = "Wash it by hand in cool water, press out the water in a towel, and dry it flat."
    row("identical-1", "home", "How do I wash a wool jumper?", same, same, **drop("similar_responses", "identical_pair"))
    same = "Order a crème brûlée and ask for two spoons."
    row("identical-2-other-bytes", "travel", "What should we eat for dessert in Lyon?", same, unicodedata.normalize("NFD", same) + " \r\n", **drop("similar_responses", "identical_pair"))
    row("similar-comma-only", "writing", "Write one line about a harbour at dusk.", "The boats came in slowly and the gulls went quiet over the grey water.", "The boats came in slowly, and the gulls went quiet over the grey water.", **drop("similar_responses", "too_similar"))


def long() -> None:
    """A prompt that alone fills a window of 1024 tokens in any tokenizer."""
    things = (
        "blue mugs, one of them chipped",
        "old postcards tied with string",
        "wooden spoons of different sizes",
        "jars of screws and hooks",
        "folded maps of the coast",
        "candles that were never lit",
        "gloves without a partner",
    )
    shelves = "\n".join(
        f"Shelf {n // 6 + 1}, box {n % 6 + 1}: {(n * 7) % 23 + 2} {things[n % 7]}." for n in range(150)
    )
    ask = f"This is the list of everything in our storage room:\n\n{shelves}\n\nIn which boxes are the folded maps?"
    row("too-long-prompt", "office", ask, "They are in every seventh box, beginning with box 5 on shelf 1.", "I do not know.", with_tokenizer={**drop("token_length", "too_long"), "max_length": 1024})


def main() -> None:
    """Write both files."""
    for part in (sound, kept_though_close, broken, opposed, repeated, no_difference, long):
        part()
    order = sorted(range(len(LINES)), key=lambda i: (i * 29) % len(LINES))  # mixed, so that peers lie apart
    names = list(TRUTH)
    first_of = [
        [n for n in names if n.startswith(p)]
        for p in ("vote-", "exact-", "near-en-", "near-zh-", "contradiction-")
    ]
    for group in first_of:  # but a copy comes after what it copies
        places = sorted(order.index(TRUTH[n]["row"]) for n in group)
        for place, name in zip(places, group, strict=True):
            order[place] = TRUTH[name]["row"]
    for name in names:
        TRUTH[name]["row"] = order.index(TRUTH[name]["row"])
    (HERE / "planted.jsonl").write_text("".join(f"{LINES[i]}\n" for i in order), encoding="utf-8")
    ordered = dict(sorted(TRUTH.items(), key=lambda item: item[1]["row"]))
    (HERE / "planted.truth.json").write_text(
        json.dumps(ordered, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
