//! A plot of lines over a logarithmic scale of sizes: how a cost grows.

use super::svg::{Svg, WIDTH};
use super::table::significant;

const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = HEIGHT - 48.0;

/// A line: its name and its points, the size and the cost.
pub struct Line {
    /// What the legend says.
    pub name: String,
    /// Size and cost, in the order of the sizes.
    pub points: Vec<(f64, f64)>,
}

/// Draws lines over powers of ten; the costs begin at 0. Nothing where there is no point.
pub fn plot(title: &str, x_axis: &str, y_axis: &str, lines: &[Line]) -> Option<String> {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let first = points().map(|(x, _)| x.log10()).reduce(f64::min)?.floor();
    let last = points().map(|(x, _)| x.log10()).reduce(f64::max)?.ceil().max(first + 1.0);
    let step = round_step(points().map(|(_, y)| y).reduce(f64::max)?.max(f64::MIN_POSITIVE) / 5.0);
    let highest = step * (points().map(|(_, y)| y).reduce(f64::max)? / step).ceil().max(1.0);
    let place = |x: f64, y: f64| {
        (LEFT + (x.log10() - first) / (last - first) * (RIGHT - LEFT), BOTTOM - y / highest * (BOTTOM - TOP))
    };

    let mut svg = Svg::new(HEIGHT, title);
    let names: Vec<String> = lines.iter().map(|line| line.name.clone()).collect();
    svg.legend(48.0, &names);
    let steps = (highest / step).round() as u32;
    for index in 0..=steps {
        let y = f64::from(index) * step;
        let (_, height) = place(10f64.powf(first), y);
        svg.grid((LEFT, height), (RIGHT, height));
        svg.text(LEFT - 8.0, height + 4.0, "small end", &label(y));
    }
    for exponent in first as i32..=last as i32 {
        let (x, _) = place(10f64.powi(exponent), 0.0);
        svg.grid((x, TOP), (x, BOTTOM));
        svg.text(x, BOTTOM + 16.0, "small middle", &size(exponent));
    }
    svg.text(f64::midpoint(LEFT, RIGHT), HEIGHT - 12.0, "small middle", x_axis);
    svg.text(LEFT - 48.0, TOP - 10.0, "small", y_axis);
    for (series, line) in lines.iter().enumerate() {
        let places: Vec<_> = line.points.iter().map(|(x, y)| place(*x, *y)).collect();
        if places.len() > 1 {
            svg.path(&places, series);
        }
        places.iter().for_each(|place| svg.dot(*place, series));
    }
    Some(svg.finish())
}

/// The next of 1, 2, 5, 10, 20, 50, ... that is not below.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let rounded = [1.0, 2.0, 5.0].into_iter().map(|digit| digit * power).find(|round| *round >= step * (1.0 - 1e-9));
    rounded.unwrap_or(10.0 * power)
}

fn label(number: f64) -> String {
    let text = significant(number, 2);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A power of ten as people say it.
fn size(exponent: i32) -> String {
    let (rest, unit) = match exponent {
        0..3 => (exponent, ""),
        3..6 => (exponent - 3, " thousand"),
        6..9 => (exponent - 6, " million"),
        9..12 => (exponent - 9, " billion"),
        _ => return format!("1e{exponent}"),
    };
    format!("{}{unit}", 10u32.pow(rest.unsigned_abs()))
}

#[cfg(test)]
#[allow(unused, reason = "cargo bench compiles this too, without the test functions")]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_numbers_not_below() {
        for (step, round) in [(0.9, 1.0), (1.0, 1.0), (1.2, 2.0), (3.0, 5.0), (7.0, 10.0), (0.03, 0.05), (120.0, 200.0)]
        {
            assert!((round_step(step) - round).abs() < 1e-9 * round, "{step}");
        }
    }

    #[test]
    fn every_point_is_inside_the_frame() {
        let line = |name: &str, points: &[(f64, f64)]| Line { name: name.into(), points: points.into() };
        let lines = [line("a", &[(1e5, 1.0), (1e9, 7.3)]), line("b", &[(1e7, 0.0)])];
        let file = plot("t", "items", "us", &lines).unwrap();
        let numbers = |name: &str| -> Vec<f64> {
            let starts = file.match_indices(name).map(|(at, _)| at + name.len());
            starts.map(|at| file[at..].split('"').next().unwrap().parse().unwrap()).collect()
        };
        assert_eq!(numbers("cx=\"").len(), 3);
        assert!(numbers("cx=\"").iter().all(|x| (LEFT..=RIGHT).contains(x)));
        assert!(numbers("cy=\"").iter().all(|y| (TOP..=BOTTOM).contains(y)));
        assert!(file.contains("100 thousand") && file.contains("1 billion"));
    }

    #[test]
    fn nothing_measured_is_no_plot() {
        assert!(plot("t", "x", "y", &[]).is_none());
        assert!(plot("t", "x", "y", &[Line { name: "a".into(), points: Vec::new() }]).is_none());
    }

    #[test]
    fn labels_have_no_digits_that_say_nothing() {
        assert_eq!([0.0, 0.5, 2.0, 20.0, 200.0].map(label), ["0", "0.5", "2", "20", "200"]);
    }
}
