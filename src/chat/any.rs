//! Every shape there is, as one type: so serde's reader is compiled once for all of them. For each by itself
//! it would be two kilobytes more of code, all of which a proxy compiles at start-up.

use std::borrow::Cow;
use std::fmt::Display;

use serde::de::{MapAccess, SeqAccess};

use super::BodyError;
use super::content::{Argument, Call, CallBody, Calls, Content, Message, Messages, Name, Part, Role};
use super::media::{Media, Source};
use super::offers::{Format, Tools};
use super::prompts::Prompts;
use super::responses::{Item, Items, Stored};
use super::shape::{Draft, Shape};
use super::system::System;

macro_rules! shapes {
    ($($shape:ident),+ $(,)?) => {
        #[derive(Clone, Copy)]
        pub(super) enum AnyShape {
            $( $shape($shape), )+
        }

        $(
            impl From<$shape> for AnyShape {
                fn from(shape: $shape) -> Self {
                    Self::$shape(shape)
                }
            }
        )+

        impl AnyShape {
            pub(super) fn text<'a>(self, draft: &mut Draft<'a>, text: Cow<'a, str>) -> Result<(), BodyError> {
                match self {
                    $( Self::$shape(shape) => shape.text(draft, text), )+
                }
            }

            pub(super) fn scalar(self, draft: &mut Draft<'_>, literal: &dyn Display) -> Result<(), BodyError> {
                match self {
                    $( Self::$shape(shape) => shape.scalar(draft, literal), )+
                }
            }

            pub(super) fn seq<'a, A: SeqAccess<'a>>(self, draft: &mut Draft<'a>, items: A) -> Result<(), A::Error> {
                match self {
                    $( Self::$shape(shape) => shape.seq(draft, items), )+
                }
            }

            pub(super) fn map<'a, A: MapAccess<'a>>(self, draft: &mut Draft<'a>, fields: A) -> Result<(), A::Error> {
                match self {
                    $( Self::$shape(shape) => shape.map(draft, fields), )+
                }
            }
        }
    };
}

shapes!(
    Argument, Call, CallBody, Calls, Content, Format, Item, Items, Media, Message, Messages, Name, Part,
    Prompts, Role, Source, Stored, System, Tools,
);
