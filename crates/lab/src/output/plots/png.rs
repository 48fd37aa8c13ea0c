//! PNG files of SVG pictures. Their font is part of the program, because a machine may have none.

use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};

/// Draws an SVG, with two pixels for each of its own.
pub(in crate::output) fn png(svg: &str) -> Result<Vec<u8>, String> {
    let options = Options { fontdb: Arc::clone(&FONTS), font_family: FAMILY.to_owned(), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|error| error.to_string())?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or("it is too large")?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or("it is too large")?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| error.to_string())
}

static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    fonts.set_sans_serif_family(FAMILY);
    Arc::new(fonts)
});

const FAMILY: &str = "Ubuntu";
const SCALE: f32 = 2.0;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::output::plots::svg::{Anchor, Svg};

    #[test]
    fn texts_are_drawn_with_the_font_of_the_program() {
        let mut svg = Svg::new();
        svg.text((50.0, 20.0), Anchor::Middle, 16.0, "#000000", "requests/s");
        let pixels = Pixmap::decode_png(&png(&svg.finish(100.0, 40.0, "")).unwrap()).unwrap();
        assert_eq!((pixels.width(), pixels.height()), (200, 80));
        let dark = pixels.pixels().iter().filter(|pixel| pixel.red() < 100).count();
        assert!((100..3000).contains(&dark), "{dark} dark pixels");
    }

    #[test]
    fn a_broken_picture_is_an_error() {
        assert!(png("<svg").is_err());
    }
}
