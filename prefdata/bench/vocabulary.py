"""Sentences out of nothing: own words and patterns in English, Chinese, Thai, for a bench without a file."""

from __future__ import annotations

from random import Random

_EN = {
    "who": "the baker|my neighbour|a young teacher|the night nurse|our mechanic|the old gardener|"
    "a travelling cook|"
    "the librarian|her cousin|the ferry pilot|a patient coach|the new tenant|the beekeeper|"
    "a tired parent|"
    "the bookkeeper|the choir leader|a retired welder|the village doctor|the dance student|"
    "a careful editor",
    "did": "cleaned|repaired|measured|borrowed|described|painted|carried|sorted|compared|collected|"
    "polished|"
    "replaced|tested|weighed|unpacked|labelled|folded|inspected|traded|sketched|wrapped|delivered|"
    "planted|rinsed",
    "what": "the copper kettle|a box of seeds|the kitchen shelf|an old map|the bicycle chain|"
    "the winter coats|"
    "a broken radio|the garden hose|a stack of letters|the train timetable|a jar of honey|"
    "the wooden ladder|"
    "the travel budget|a torn curtain|the spare keys|the school piano|a basket of plums|"
    "the water filter|"
    "a roll of cloth|the front gate|the camping stove|a bundle of cables|the recipe cards|"
    "the attic window",
    "how": "before breakfast|with great care|in the rain|after the market closed|without any hurry|"
    "by hand|"
    "on a quiet Sunday|with a borrowed tool|during the lunch break|long after dark|in small steps|"
    "while the soup cooled|as the guide suggests|with two friends|in the shade|at the usual place",
    "why": "because the weather was about to change|since nobody else had the time|"
    "so that the guests could sit down|"
    "although the instructions were unclear|to keep the costs low|because the old one had worn out|"
    "in order to save some space|so the children could sleep|as the lease would soon end|"
    "since the shop had run out of paint|to make the work lighter|because the first attempt had failed",
    "then": "Then it was time to rest|After that everything went smoothly|The result pleased everyone|"
    "It took longer than planned|Most people would do the same|A second look is always worthwhile|"
    "The trick is to start early|A good lamp helps a lot|Ask for advice when in doubt|"
    "Small tools are often enough",
    "tip": "Keep the receipt|Write down the steps|Let the surface dry|Check the joints|"
    "Use a soft brush|"
    "Leave room for air|Open a window|Warm the oil slowly|Read the label|Count the screws|"
    "Start from the left|"
    "Wear thick gloves|Cover the floor|Turn off the power|Stir from time to time|"
    "Save a copy of the file",
    "ask": "How can|When should|Why would|Where could|How often should|With which tool would",
}
_EN_FORMS = (
    "{who} {did} {what} {how} {why}.", "{who} {did} {what} and {did} {what} {how}.",
    "{tip}, then {tip_low} {how}.",
    "{then}, {why}.", "When {who} {did} {what}, it was done {how}.", "{tip} {why}, and {tip_low}.",
    "Some say that {who} {did} {what} {how}; others say it was {who}.", "{then}.", "{tip} {how}.",
    "It costs about {number} coins and lasts for {number} days, {why}.",
    "{ask} {who} have {did} {what} {how}?",
)  # fmt: skip
_ZH = {
    "who": "邻居|老师|厨师|医生|木匠|园丁|司机|店主|护士|学生|编辑|会计|表姐|教练|渔夫|裁缝",
    "did": "修好了|清洗了|搬走了|整理了|比较了|打开了|借来了|包好了|测量了|重新摆放了|仔细检查了|慢慢擦干了",
    "what": "旧茶壶|厨房的架子|一箱种子|自行车链条|冬天的外套|花园的水管|木头梯子|备用钥匙|"
    "旅行预算|那张地图|一篮李子|窗帘",
    "how": "在下雨的早上|趁着午休的时间|按照说明书|和两个朋友一起|在安静的周末|用借来的工具|一步一步地|在院子的阴凉处",
    "why": "因为天气快要变了|为了节省一些空间|以便客人能坐下来|由于旧的已经磨损|为了让孩子早点睡觉|因为商店刚好关门",
    "tip": "先把表面擦干|写下每一个步骤|保留购物的收据|打开窗户通风|从左边开始|小火慢慢加热|戴上厚手套|检查一下接口",
}
_ZH_FORMS = (
    "{who}{how}{did}{what}，{why}。", "{tip}，然后{tip}，{why}。", "{who}{did}{what}，{who}也来帮忙。",
    "{why}，所以{who}{how}{did}{what}。", "如果时间够用，可以{tip}，再{tip}。", "大约需要{number}天，{why}。",
    "怎样才能让{who}{how}看到{what}？",
)  # fmt: skip
_TH = {
    "who": "เพื่อนบ้าน|คุณครู|พ่อครัว|คุณหมอ|ช่างไม้|คนสวน|คนขับรถ|เจ้าของร้าน|พยาบาล|นักเรียน|พี่สาว|ชาวประมง",
    "did": "ซ่อม|ล้าง|ย้าย|จัดเรียง|เปรียบเทียบ|เปิด|ยืม|ห่อ|วัด|ทาสี|ตรวจดู|เช็ด",
    "what": "กาน้ำเก่า|ชั้นวางในครัว|กล่องเมล็ดพันธุ์|โซ่จักรยาน|เสื้อกันหนาว|สายยาง|บันไดไม้|กุญแจสำรอง|แผนที่|ตะกร้าผลไม้|ผ้าม่าน|วิทยุ",
    "how": "ในตอนเช้า|ตอนพักกลางวัน|ตามคู่มือ|กับเพื่อนสองคน|ในวันอาทิตย์|ด้วยเครื่องมือที่ยืมมา|ทีละขั้น|ใต้ร่มไม้",
    "why": "เพราะอากาศกำลังจะเปลี่ยน|เพื่อประหยัดพื้นที่|เพื่อให้แขกนั่งได้|เพราะของเก่าสึกแล้ว|เพื่อให้เด็กหลับเร็ว|เพราะร้านปิดแล้ว",
    "tip": "เช็ดพื้นผิวให้แห้งก่อน|จดทุกขั้นตอน|เก็บใบเสร็จ|เปิดหน้าต่าง|เริ่มจากด้านซ้าย|ใช้ไฟอ่อน|สวมถุงมือหนา|ตรวจดูข้อต่อ",
}
_TH_FORMS = (
    "{who}{did}{what}{how} {why}", "{tip} แล้ว{tip} {why}", "{who}{did}{what} และ{who}{did}{what}{how}",
    "{why} ดังนั้น{who}จึง{did}{what}{how}", "ถ้ามีเวลา ควร{tip} แล้วค่อย{tip}", "ใช้เวลาประมาณ {number} วัน {why}",
)  # fmt: skip
CODE = (
    "```python\ndef total(prices):\n    return round(sum(prices) * 1.07, 2)\n```",
    "```sh\nfind . -name '*.log' -mtime +7 -delete\n```",
    "```sql\nSELECT town, COUNT(*) FROM visits GROUP BY town HAVING COUNT(*) > 3;\n```",
    "```js\nconst late = orders.filter(o => !o.paid && o.days > 14);\n```",
)


def sentences(english: int = 24000, chinese: int = 4000, thai: int = 2500, seed: int = 7) -> list[str]:
    """Distinct made-up sentences, and a few blocks of code."""
    out: dict[str, None] = dict.fromkeys(CODE)
    for words, forms, n in ((_EN, _EN_FORMS, english), (_ZH, _ZH_FORMS, chinese), (_TH, _TH_FORMS, thai)):
        rng, choices = Random(seed), {k: v.split("|") for k, v in words.items()}
        goal = len(out) + n
        while len(out) < goal:
            out[_filled(rng, rng.choice(forms), choices)] = None
    return list(out)


def _filled(rng: Random, form: str, choices: dict[str, list[str]]) -> str:
    parts = form.split("{")
    text = parts[0]
    for part in parts[1:]:
        slot, _, rest = part.partition("}")
        if slot == "number":
            word = str(rng.randint(2, 90))
        else:
            word = rng.choice(choices[slot.removesuffix("_low")])
        text += (word.lower() if slot.endswith("_low") else word) + rest
    return text[:1].upper() + text[1:]
