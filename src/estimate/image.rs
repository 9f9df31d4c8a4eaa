//! Pictures → tokens, by the rules of OpenAI's model families; dimensions from the first bytes of a
//! `data:` URL. What cannot be known (a remote URL, another vendor, a torn header) is the policy's flat
//! figure.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use tollgate_budget::Tokens;

use super::text::scale_up;
use crate::chat::{Detail, Image, ImageSource};

/// How a family of models bills a picture.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ImageRule {
    /// A base, and so much for every tile of 512 × 512 after scaling.
    Tiles { base: u64, tile: u64 },
    /// Patches of 32 × 32, at most 1,536 of them, times a factor in thousandths.
    Patches { factor_milli: u64 },
    /// No rule known.
    Flat,
}

/// Families by the start of the name, the more special one first. Sizes of gpt-5 stand at the end of names
/// with versions between (`gpt-5.4-mini`).
const FAMILIES: [(&str, &str, ImageRule); 15] = [
    ("gpt-4o-mini", "", ImageRule::Tiles { base: 2833, tile: 5667 }),
    ("gpt-4o", "", ImageRule::Tiles { base: 85, tile: 170 }),
    ("chatgpt-4o", "", ImageRule::Tiles { base: 85, tile: 170 }),
    ("gpt-4.1-mini", "", ImageRule::Patches { factor_milli: 1620 }),
    ("gpt-4.1-nano", "", ImageRule::Patches { factor_milli: 2460 }),
    ("gpt-4.1", "", ImageRule::Tiles { base: 85, tile: 170 }),
    ("gpt-4.5", "", ImageRule::Tiles { base: 85, tile: 170 }),
    ("gpt-4-turbo", "", ImageRule::Tiles { base: 85, tile: 170 }),
    ("gpt-4-vision", "", ImageRule::Tiles { base: 85, tile: 170 }),
    ("o4-mini", "", ImageRule::Patches { factor_milli: 1720 }),
    ("o3", "", ImageRule::Tiles { base: 75, tile: 150 }),
    ("o1", "", ImageRule::Tiles { base: 75, tile: 150 }),
    ("gpt-5", "-mini", ImageRule::Patches { factor_milli: 1620 }),
    ("gpt-5", "-nano", ImageRule::Patches { factor_milli: 2460 }),
    ("gpt-5", "", ImageRule::Tiles { base: 70, tile: 140 }),
];

impl ImageRule {
    pub(super) fn of(model: &str) -> Self {
        // `openai/gpt-4o` of the routers, `ft:gpt-4o:org::id` of a fine-tuned one.
        let name = model.rsplit('/').next().unwrap_or(model);
        let name = name.strip_prefix("ft:").unwrap_or(name);
        FAMILIES
            .iter()
            .find(|(family, size, _)| {
                name.strip_prefix(family)
                    .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric) && rest.contains(size))
            })
            .map_or(Self::Flat, |(_, _, rule)| *rule)
    }
}

pub(super) fn tokens(image: &Image<'_>, rule: ImageRule, flat: Tokens) -> Tokens {
    match (rule, image.detail) {
        (ImageRule::Flat, _) => flat,
        (ImageRule::Tiles { base, tile: _ }, Some(Detail::Low)) => Tokens::new(base),
        // `auto` may become `high`, and what `low` does to patches nobody has published.
        (ImageRule::Tiles { .. }, Some(Detail::Auto | Detail::High) | None)
        | (ImageRule::Patches { .. }, _) => match dimensions(&image.source) {
            Some(size) => Tokens::new(by_rule(rule, size)).max(Tokens::new(1)),
            None => flat,
        },
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Size {
    width: u64,
    height: u64,
}

/// The side of the square that a picture is first fitted into.
const FIT: u64 = 2048;
/// What its shorter side is then brought down to.
const SHORT: u64 = 768;
const TILE: u64 = 512;
const PATCH: u64 = 32;
const MOST_PATCHES: u64 = 1536;

fn by_rule(rule: ImageRule, size: Size) -> u64 {
    match rule {
        ImageRule::Tiles { base, tile } => {
            let size = shrunk(size, size.width.max(size.height), FIT);
            let size = shrunk(size, size.width.min(size.height), SHORT);
            let tiles = size.width.div_ceil(TILE).saturating_mul(size.height.div_ceil(TILE));
            tile.saturating_mul(tiles).saturating_add(base)
        }
        ImageRule::Patches { factor_milli } => {
            let patches = size.width.div_ceil(PATCH).saturating_mul(size.height.div_ceil(PATCH));
            scale_up(patches.min(MOST_PATCHES), factor_milli, 1000)
        }
        ImageRule::Flat => 0,
    }
}

/// Scaled down until `side` is at most `most`; never up.
fn shrunk(size: Size, side: u64, most: u64) -> Size {
    if side <= most {
        return size;
    }
    Size { width: scale_up(size.width, most, side), height: scale_up(size.height, most, side) }
}

/// Where PNG, GIF and WebP say their size.
const SHORT_HEADER: usize = 64;
/// A JPEG says it behind its metadata: one EXIF segment of up to 64 KiB and often a colour profile.
const LONG_HEADER: usize = 131_072;

fn dimensions(source: &ImageSource<'_>) -> Option<Size> {
    let data = match source {
        ImageSource::Base64(data) => data,
        ImageSource::Url(url) => url.strip_prefix("data:")?.split_once(";base64,")?.1,
        ImageSource::Elsewhere => return None,
    };
    [SHORT_HEADER, LONG_HEADER].into_iter().find_map(|bytes| {
        let size = imagesize::blob_size(&head(data, bytes)?).ok()?;
        let size = Size { width: size.width as u64, height: size.height as u64 };
        (size.width > 0 && size.height > 0).then_some(size)
    })
}

/// A cut may fall anywhere in the last group, and some encoders leave the padding out.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The first decoded bytes, about so many.
fn head(data: &str, bytes: usize) -> Option<Vec<u8>> {
    let wanted = bytes.div_ceil(3).saturating_mul(4);
    let data = data.as_bytes();
    LENIENT.decode(data.get(..wanted).unwrap_or(data)).ok()
}

#[cfg(test)]
mod tests {
    use base64::prelude::BASE64_STANDARD;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    const FLAT: Tokens = Tokens::new(1000);

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(height.to_be_bytes());
        bytes.extend(*b"\x08\x02\0\0\0");
        bytes
    }

    /// `metadata` bytes stand before the frame header.
    fn jpeg(width: u16, height: u16, metadata: usize) -> Vec<u8> {
        let mut bytes = b"\xff\xd8".to_vec();
        for _ in 0..metadata / 60_000 {
            bytes.extend(*b"\xff\xe1");
            bytes.extend(60_002_u16.to_be_bytes());
            bytes.resize(bytes.len() + 60_000, b'x');
        }
        bytes.extend(*b"\xff\xc0\x00\x11\x08");
        bytes.extend(height.to_be_bytes());
        bytes.extend(width.to_be_bytes());
        bytes.extend(*b"\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01");
        bytes
    }

    fn cost(model: &str, bytes: &[u8], detail: Detail) -> u64 {
        let url = format!("data:image/any;base64,{}", BASE64_STANDARD.encode(bytes));
        tokens(
            &Image { source: ImageSource::Url(url.into()), detail: Some(detail) },
            ImageRule::of(model),
            FLAT,
        )
        .count()
    }

    #[test]
    fn published_prices_of_known_sizes() {
        for (model, width, height, detail, expected) in [
            ("gpt-4o", 1024, 1024, Detail::High, 765),
            ("gpt-4o", 2048, 4096, Detail::High, 1105),
            ("gpt-4o", 4096, 8192, Detail::Low, 85),
            ("gpt-4o", 512, 512, Detail::Auto, 255),
            ("openai/gpt-4o-2024-08-06", 1024, 1024, Detail::Auto, 765),
            ("ft:gpt-4o-2024-08-06:org::id", 1024, 1024, Detail::Auto, 765),
            ("gpt-4o-mini", 512, 512, Detail::High, 8500),
            ("o3", 512, 512, Detail::High, 225),
            ("gpt-5", 512, 512, Detail::High, 210),
            ("gpt-5.4", 512, 512, Detail::High, 210),
            ("gpt-5.4-mini", 1024, 1024, Detail::High, 1659),
            ("gpt-4.1-mini", 1024, 1024, Detail::High, 1659),
            ("gpt-4.1-mini", 10_000, 10_000, Detail::High, 2489),
            ("o4-mini", 32, 32, Detail::High, 2),
            ("claude-sonnet-4", 512, 512, Detail::High, 1000),
            ("gpt-4ox", 512, 512, Detail::High, 1000),
        ] {
            assert_eq!(cost(model, &png(width, height), detail), expected, "{model} {width}×{height}");
        }
    }

    #[test]
    fn a_jpeg_is_measured_behind_its_metadata() {
        assert_eq!(cost("gpt-4o", &jpeg(1024, 1024, 0), Detail::High), 765);
        assert_eq!(cost("gpt-4o", &jpeg(1024, 1024, 60_000), Detail::High), 765);
        assert_eq!(cost("gpt-4o", &jpeg(1024, 1024, 300_000), Detail::High), 1000, "beyond the bound");
    }

    #[test]
    fn what_cannot_be_measured_is_flat() {
        for source in [
            ImageSource::Url("https://example.org/a.png".into()),
            ImageSource::Url("data:image/png;base64,".into()),
            ImageSource::Url("data:image/png;base64,!!!!".into()),
            ImageSource::Url("data:image/png,raw".into()),
            ImageSource::Base64("AAAA".into()),
            ImageSource::Base64(BASE64_STANDARD.encode(png(0, 9)).into()),
            ImageSource::Elsewhere,
        ] {
            let image = Image { source, detail: Some(Detail::High) };
            assert_eq!(tokens(&image, ImageRule::of("gpt-4o"), FLAT), FLAT);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]

        #[test]
        fn garbage_behind_any_signature_neither_panics_nor_costs_nothing(
            signature in prop::sample::select(vec![
                &b"\xff\xd8\xff\xe0"[..], b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF\x10\0\0\0WEBPVP8 ", b"RIFF\x10\0\0\0WEBPVP8L",
                b"RIFF\x10\0\0\0WEBPVP8X", b"",
            ]),
            rest in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let bytes = [signature, &rest].concat();
            for model in ["gpt-4o", "gpt-4.1-mini", "other"] {
                prop_assert!(cost(model, &bytes, Detail::High) > 0);
            }
        }

        #[test]
        fn a_larger_picture_never_costs_less_in_patches(width in 1_u64..5000, height in 1_u64..5000, more in 0_u64..500) {
            let rule = ImageRule::Patches { factor_milli: 1620 };
            let small = by_rule(rule, Size { width, height });
            let wider = by_rule(rule, Size { width: width + more, height });
            prop_assert!(wider >= small);
            prop_assert!(small <= 2489);
        }

        #[test]
        fn tiles_are_few_whatever_the_picture(width in 1_u64..u64::from(u32::MAX), height in 1_u64..u64::from(u32::MAX)) {
            let tiles = by_rule(ImageRule::Tiles { base: 0, tile: 1 }, Size { width, height });
            prop_assert!((1..=8).contains(&tiles));
        }
    }
}
