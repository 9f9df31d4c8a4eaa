//! Generated texts of all kinds that make tokenizers differ. The same seed gives the same texts.
#![allow(dead_code, unreachable_pub, reason = "each test and the bench use their part")]
#![allow(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::cast_possible_truncation,
    reason = "a generator of texts for tests"
)]

pub mod hostile;

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

type Kind = fn(&mut Random) -> String;

/// Kinds of text, and how many of each make the corpus: 3,110 with [`EDGES`] beside.
pub const KINDS: [(&str, usize, Kind); 13] = [
    ("English", 350, english),
    ("code", 350, code),
    ("JSON", 200, json),
    ("sixteen scripts", 560, scripts),
    ("emoji", 150, emoji),
    ("whitespace", 300, whitespace),
    ("digits", 150, digits),
    ("special tokens", 200, special_tokens),
    ("random characters", 300, random_characters),
    ("adversarial pieces", 300, adversarial),
    ("base64", 150, base64),
    ("repeats", 80, repeats),
    ("overlapping tokens", 20, overlapping),
];

pub fn corpus() -> impl Iterator<Item = (&'static str, String)> {
    let generated = KINDS.into_iter().enumerate().flat_map(|(seed, (name, count, make))| {
        let mut random = Random::seeded(seed as u64);
        (0..count).map(move |_| (name, make(&mut random)))
    });
    generated.chain(EDGES.into_iter().map(|text| ("edge", text.to_owned())))
}

fn joined(random: &mut Random, count: usize, mut part: impl FnMut(&mut Random) -> String) -> String {
    (0..count).map(|_| part(random)).collect()
}

const WORDS: &str = "the of and to in a is that for it as was with be by on not he his but at are this have \
    from or had an they which one you were all her she there would their we him been has when who will no more \
    if out so what up said about into than them can only other time new some could these two may first then do \
    agreement notwithstanding foregoing licensee warranties merchantability indemnification jurisdiction \
    contributor derivative perpetual irrevocable sublicense tokenizer budget upstream gateway latency Fibonacci \
    Jabberwocky antidisestablishmentarianism floccinaucinihilipilification naïve café Zürich coöperate façade";

fn word(random: &mut Random) -> String {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let word = random.pick(&words);
    match random.below(12) {
        0 => word.to_uppercase(),
        1 => word[..1].to_uppercase() + &word[1..],
        2 => {
            word.to_owned()
                + random.pick(&["'s", "'ll", "'re", "'ve", "'t", "'d", "'m", "'S", "’s", "'x", "s'"])
        }
        _ => word.to_owned(),
    }
}

fn english(random: &mut Random) -> String {
    let count = random.between(1, 120);
    joined(random, count, |random| {
        let ending = random.pick(&[
            " ", " ", " ", " ", " ", " ", ", ", ". ", "; ", " (", ") ", ".\n", "\n\n", ": \"", "\" ", " – ",
            "-", "? ",
        ]);
        word(random) + ending
    })
}

fn code(random: &mut Random) -> String {
    const PARTS: [&str; 40] = [
        "fn ",
        "pub(crate) ",
        "let mut ",
        "impl<T: Clone> ",
        "def ",
        "return ",
        "self.",
        "::new()",
        "()",
        "{\n",
        "}\n\n",
        ";\n",
        "    ",
        "\t",
        "\t\t",
        "        ",
        " => ",
        " != ",
        "// ",
        "# ",
        "\"\"\"",
        "r#\"",
        "\"#",
        "[0; 16]",
        "&'a ",
        "0x1F_u8",
        "3.14e-10",
        "i32",
        "async ",
        ".await?",
        "#[derive(Debug)]\n",
        "/* */",
        "//////",
        "==>",
        "lambda x: ",
        "__init__",
        "snake_case_name",
        "camelCaseName",
        "HTTPServerV2",
        "\r\n",
    ];
    let count = random.between(1, 150);
    joined(random, count, |random| match random.below(4) {
        0 => word(random),
        _ => random.pick(&PARTS).to_owned(),
    })
}

fn json(random: &mut Random) -> String {
    let count = random.between(1, 30);
    let rows = joined(random, count, |random| {
        let gap = random.pick(&["", " ", "\n  ", "\r\n\t"]);
        let number = random.next() as i64 >> random.below(60);
        format!(
            "{gap}{{\"{}\":{gap}{number},{gap}\"{}\": \"{}\\n\\u00e9\", \"x\":[null,true,{}.{}e{}]}},",
            word(random),
            word(random),
            word(random),
            random.below(1000),
            random.below(1_000_000),
            random.below(30),
        )
    });
    format!("[{rows}]")
}

/// Letters and marks of each script, with what stands between its words.
const SCRIPTS: [(&str, &str); 16] = [
    ("中文字符的一是不了人我在有他这为之大来以个上们到说国和地也子时道出而要于就下得可你年生", "，。"),
    ("あいうえおかきくけこさしすせそたちつてとなにぬねのカタカナンー東京日本語", "、。"),
    ("ابتثجحخدذرزسشصضطظعغفقكلمنهوي\u{64B}\u{64E}\u{650}\u{651}ـ", " ،؟"),
    ("अआइईउऊएकखगघचछजझटठडणतथदधनपफबभमयरलवशसह\u{93E}\u{93F}\u{940}\u{941}\u{947}\u{94D}\u{902}", " ।"),
    ("가나다라마바사아자차카타파하한국어는을를이다했습니까", " ."),
    ("абвгдежзийклмнопрстуфхцчшщъыьэюяАБВГДЕЖЗЁё", " ,."),
    ("αβγδεζηθικλμνξοπρσςτυφχψωΑΒΓΔΕάέήίόύώ", " ·;"),
    ("אבגדהוזחטיכלמנסעפצקרשת\u{5B0}\u{5B8}\u{5BC}", " .״"),
    ("กขคงจฉชซญดตถทธนบปผพฟภมยรลวศษสหอฮะาเแโใไ\u{E31}\u{E34}\u{E48}\u{E49}", " "),
    ("aăâbcdđeêghiklmnoôơpqrstuưvxyáàảãạấầẩẫậĐƯƠ", " ,."),
    ("aäbcdefghijklmnoöpqrsßtuüvwxyzÄÖÜẞ", " ,.-"),
    ("abcçdefgğhıijklmnoöprsştuüvyzİIÇĞŞ", " ,."),
    ("அஆஇஈஉஊஎஏகஙசஞடணதநபமயரலவழளறன\u{BBE}\u{BBF}\u{BC0}\u{BCD}", " ."),
    ("অআইঈউকখগঘচছজঝটঠডঢণতথদধনপফবভমযরলশষসহ\u{9BE}\u{9BF}\u{9C0}\u{9CD}\u{982}", " ।"),
    ("አበገደሀወዘሐጠየከለመነሠዐፈጸቀረሰተኀኘዠጀፐ", " ፡።"),
    ("აბგდევზთიკლმნოპჟრსტუფქღყშჩცძწჭხჯჰᲐᲑᲒ", " ,."),
];

fn scripts(random: &mut Random) -> String {
    let (letters, between) = random.pick(&SCRIPTS);
    let letters: Vec<char> = letters.chars().collect();
    let between: Vec<char> = between.chars().collect();
    let count = random.between(1, 60);
    joined(random, count, |random| {
        let length = random.between(1, 9);
        let mut word = joined(random, length, |random| random.pick(&letters).into());
        if random.below(10) == 0 {
            word = word.to_uppercase();
        }
        word.push(random.pick(&between));
        if random.below(15) == 0 {
            word.push_str(random.pick(&["\n", " 12", "٣٤", "iPhone", "’", "\u{200C}", "\u{200F}"]));
        }
        word
    })
}

fn emoji(random: &mut Random) -> String {
    const PARTS: [&str; 22] = [
        "👨",
        "\u{200D}",
        "👩",
        "👧",
        "👦",
        "\u{FE0F}",
        "❤",
        "🏽",
        "🏿",
        "🇩",
        "🇪",
        "🇯",
        "🇵",
        "😀",
        "🤖",
        "1\u{FE0F}\u{20E3}",
        "🏴\u{E0067}\u{E0062}\u{E007F}",
        " ",
        "a",
        "👨\u{200D}👩\u{200D}👧",
        "\n",
        "🫠",
    ];
    let count = random.between(1, 60);
    joined(random, count, |random| random.pick(&PARTS).to_owned())
}

/// Eighteen kinds of `\s`, and three characters that only look like it.
pub const SPACES: [char; 21] = [
    ' ', '\t', '\n', '\r', '\u{B}', '\u{C}', '\u{85}', '\u{A0}', '\u{1680}', '\u{2000}', '\u{2003}',
    '\u{2007}', '\u{2009}', '\u{200A}', '\u{2028}', '\u{2029}', '\u{202F}', '\u{3000}', '\u{200B}',
    '\u{FEFF}', '\u{180E}',
];

fn whitespace(random: &mut Random) -> String {
    let common = random.below(2) == 0;
    let count = random.between(1, 80);
    let mut text = joined(random, count, |random| {
        let space =
            if common { random.pick(&[' ', ' ', ' ', '\n', '\t', '\r']) } else { random.pick(&SPACES) };
        let times = random.between(1, 4);
        let mut run = joined(random, times, |_| space.into());
        if random.below(6) == 0 {
            run.push_str(random.pick(&["x", "X", "1", "!", "漢", "'s", "/", "\u{301}"]));
        }
        run
    });
    if random.below(2) == 0 {
        text.push('x');
    }
    text
}

fn digits(random: &mut Random) -> String {
    let digits: Vec<char> = "0123456789".chars().chain("٠١٢٣४५৬Ⅷ½²①〇𝟘".chars()).collect();
    let plain = random.below(3) > 0;
    let count = random.between(1, 120);
    joined(random, count, |random| match random.below(12) {
        0 => random.pick(&[" ", ",", ".", "-", "e", "\n", "'", "$", "%"]).to_owned(),
        _ => random.pick(if plain { &digits[..10] } else { &digits }).into(),
    })
}

fn special_tokens(random: &mut Random) -> String {
    const PARTS: [&str; 18] = [
        "<|endoftext|>",
        "<|endofprompt|>",
        "<|fim_prefix|>",
        "<|fim_middle|>",
        "<|fim_suffix|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|start|>",
        "<|channel|>",
        "<|",
        "|>",
        "<|endoftext",
        "endoftext|>",
        "user",
        "system\n",
        " ",
        "<s>",
        "[INST]",
    ];
    let count = random.between(1, 40);
    joined(random, count, |random| random.pick(&PARTS).to_owned())
}

/// Any character of any plane, half of them from where characters are.
pub fn character(random: &mut Random) -> char {
    let bound = random.pick(&[0x80, 0x250, 0x3000, 0x1_0000, 0x2_0000, 0x11_0000]);
    loop {
        if let Some(character) = char::from_u32(random.below(bound) as u32) {
            return character;
        }
    }
}

fn random_characters(random: &mut Random) -> String {
    let count = random.between(1, 200);
    joined(random, count, |random| character(random).into())
}

/// One or two of every class, and whatever the regexes treat apart.
const PIECES: [&str; 56] = [
    "a", "b", "s", "t", "re", "ll", "A", "B", "S", "RE", "ǅ", "ʰ", "漢", "ª", "\u{301}", "\u{903}", "1", "Ⅷ",
    "²", " ", "  ", "\t", "\n", "\r", "\r\n", "\u{85}", "\u{A0}", "\u{2028}", "!", "/", "//", "'", "''",
    "'s", "'S", "'ſ", "'T", "'re", "'RE", "'rE", "'ve", "'ll", "'LL", "'lL", "'d", "'m", "'K", "K", "ſ", "İ",
    "ı", "ß", "-", "_", "\0", "\u{FFFD}",
];

pub fn adversarial(random: &mut Random) -> String {
    let count = random.between(1, 120);
    joined(random, count, |random| {
        let times = if random.below(8) == 0 { random.between(2, 30) } else { 1 };
        random.pick(&PIECES).repeat(times)
    })
}

fn base64(random: &mut Random) -> String {
    let alphabet: Vec<char> = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['+', '/']).collect();
    let count = random.between(1, 3000);
    let mut text = joined(random, count, |random| random.pick(&alphabet).into());
    text.push_str(random.pick(&["", "=", "=="]));
    text
}

fn repeats(random: &mut Random) -> String {
    let count = random.between(1, 3);
    joined(random, count, |random| {
        let length = random.between(1, 4);
        let unit = joined(random, length, |random| random.pick(&PIECES).to_owned());
        unit.repeat(random.between(1, 1500))
    })
}

/// Long words in which tokens overlap, so that merges depend on what is far to the left.
fn overlapping(random: &mut Random) -> String {
    let letters = random.pick(&["ab", "abc", "aeinorst", "ABab", "на", "漢字", "=-", "がぎ"]);
    let letters: Vec<char> = letters.chars().collect();
    let length = random.between(1, 20_000);
    joined(random, length, |random| random.pick(&letters).into())
}

pub const EDGES: [&str; 48] = [
    "",
    " ",
    "\n",
    "\r\n",
    "\r",
    "a",
    "A",
    "ſ",
    "K",
    "İ",
    "ǅ",
    "ǅa",
    "aǅ",
    "\u{301}",
    " \u{301}",
    "a\u{301}",
    "A\u{301}",
    "\u{301}A",
    "\u{301}Aa",
    "'s",
    "'S",
    "'ſ",
    "a'ſ",
    "A'S",
    "漢'S",
    "漢A'S",
    "漢AB",
    "漢ABc",
    " 漢AB",
    "a'",
    "a'r",
    "a're",
    "a'rex",
    "'rex",
    "'lL",
    "it'S",
    " 's",
    "\n's",
    "!\r\n/a",
    "!/\n/",
    "! \n",
    " \n \n ",
    " \n \n x",
    "  x",
    "\t x",
    "\u{A0}x",
    "1234567",
    "\u{FEFF}<|endoftext|>",
];
