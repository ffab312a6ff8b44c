//! The frame of a plot: an SVG file with a style that follows the reader's light or dark background, without scripts
//! and without anything from elsewhere. What is drawn inside is in `lines` and `bars`.

/// Width of every plot, in its own units.
pub const WIDTH: f64 = 760.0;
/// The colours of the series, in order: by class, so that the style can have others on a dark background.
pub const COLOURS: usize = 6;

const STYLE: &str = "
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; font-size: 15px; }
  .small { font-size: 11px; }
  .end { text-anchor: end; }
  .middle { text-anchor: middle; }
  .grid { stroke: #d1d9e0; stroke-width: 1; }
  .line { fill: none; stroke-width: 2; }
  .s0 { stroke: #0969da; fill: #0969da; } .s1 { stroke: #bc4c00; fill: #bc4c00; }
  .s2 { stroke: #1a7f37; fill: #1a7f37; } .s3 { stroke: #8250df; fill: #8250df; }
  .s4 { stroke: #bf3989; fill: #bf3989; } .s5 { stroke: #57606a; fill: #57606a; }
  path.line { fill: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .grid { stroke: #3d444d; }
    .s0 { stroke: #58a6ff; fill: #58a6ff; } .s1 { stroke: #f0883e; fill: #f0883e; }
    .s2 { stroke: #3fb950; fill: #3fb950; } .s3 { stroke: #bc8cff; fill: #bc8cff; }
    .s4 { stroke: #f778ba; fill: #f778ba; } .s5 { stroke: #9198a1; fill: #9198a1; }
    path.line { fill: none; }
  }
";

/// A drawing under way.
pub struct Svg(String);

impl Svg {
    /// A drawing with its title.
    pub fn new(height: f64, title: &str) -> Self {
        let title = escaped(title);
        let mut svg = Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n"
        ));
        svg.text(16.0, 26.0, "title", &title);
        svg
    }

    /// Words at a place; the classes say how.
    pub fn text(&mut self, x: f64, y: f64, classes: &str, text: &str) {
        self.0 += &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{classes}\">{}</text>\n", escaped(text));
    }

    /// A straight line of the grid.
    pub fn grid(&mut self, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.0 += &format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"grid\"/>\n");
    }

    /// A line through points, in the colour of a series.
    pub fn path(&mut self, points: &[(f64, f64)], series: usize) {
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        self.0 += &format!("<path d=\"M{}\" class=\"line s{}\"/>\n", path.join(" L"), series % COLOURS);
    }

    /// A dot in the colour of a series.
    pub fn dot(&mut self, (x, y): (f64, f64), series: usize) {
        self.0 += &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" class=\"s{}\"/>\n", series % COLOURS);
    }

    /// A filled box in the colour of a series.
    pub fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, series: usize) {
        let class = series % COLOURS;
        self.0 += &format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"s{class}\"/>\n"
        );
    }

    /// The names of the series with their colours, in a row at this height; those that do not fit go below.
    pub fn legend(&mut self, y: f64, names: &[String]) {
        let (mut x, mut y) = (16.0, y);
        for (series, name) in names.iter().enumerate() {
            let wide = 26.0 + 7.2 * name.chars().count() as f64;
            if x + wide > WIDTH && x > 16.0 {
                (x, y) = (16.0, y + 18.0);
            }
            self.bar(x, y - 9.0, 10.0, 10.0, series);
            self.text(x + 15.0, y, "", name);
            x += wide;
        }
    }

    /// The file.
    pub fn finish(mut self) -> String {
        self.0 += "</svg>\n";
        self.0
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
#[allow(unused, reason = "cargo bench compiles this too, without the test functions")]
mod tests {
    use super::*;

    #[test]
    fn words_cannot_break_the_file() {
        let mut svg = Svg::new(100.0, "a < b");
        svg.text(1.0, 2.0, "end", "c & d");
        let file = svg.finish();
        assert!(file.contains("<title>a &lt; b</title>") && file.contains("c &amp; d"), "{file}");
        assert!(file.starts_with("<svg ") && file.ends_with("</svg>\n"));
    }

    #[test]
    fn it_has_a_dark_side_and_no_script() {
        let file = Svg::new(100.0, "t").finish();
        assert!(file.contains("prefers-color-scheme: dark") && !file.contains("<script"));
    }
}
