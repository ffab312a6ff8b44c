//! The plots, drawn from the CSV of a table, so that new and stored figures give the same plots.

use std::collections::BTreeMap;

use anyhow::Result;
use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::full_palette::{BLUE_600, GREEN_600, GREY_600, ORANGE_800, PINK_400, PURPLE_300};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::table::significant;

/// The width of every plot in pixels, which fits a README.
const WIDTH: u32 = 820;
const MARGIN: u32 = 16;
/// The height of the title and the names of the variants.
const HEAD: u32 = 72;
/// The height of a bar.
const BAR: u32 = 20;
/// The height of the axis below a panel, and of its label.
const SCALE: u32 = 72;
/// The height of a line plot.
const LINES: u32 = 340;

/// Plots have no background; this colour is legible on light and dark ones.
const INK: RGBColor = GREY_600;
/// The colours of the variants, in order.
const COLOURS: [RGBColor; 5] = [BLUE_600, ORANGE_800, GREEN_600, PURPLE_300, PINK_400];

/// A row of a table by the names of its columns.
type Row = BTreeMap<String, String>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A plot.
pub struct Plot {
    /// The file's name.
    pub file: &'static str,
    /// The title.
    pub title: &'static str,
    /// The file's contents.
    pub svg: String,
}

/// Returns the plots of the table with this name: none if the table is not drawn, or without figures.
pub fn of(table: &str, csv: &str) -> Result<Vec<Plot>> {
    let rows: Vec<Row> = csv::Reader::from_reader(csv.as_bytes()).deserialize().collect::<csv::Result<_>>()?;
    let mut plots = Vec::new();
    let mut take = |file, title, svg: Option<String>| plots.extend(svg.map(|svg| Plot { file, title, svg }));
    match table {
        "commands" => {
            let title = "Time inside a command";
            let (many, one) = of_commands(&rows).into_iter().partition(|figure| figure.about.contains(" 100 "));
            take("commands.svg", title, bars(title, &[("µs per call, of 100 items", many), ("µs per call", one)])?);
        }
        "peer" => {
            let title = "Time inside a command, compared with another module";
            let (many, one) = of_commands(&rows).into_iter().partition(|figure| figure.about.contains(" 100 "));
            take("peer.svg", title, bars(title, &[("µs per call, of 100 items", many), ("µs per call", one)])?);
        }
        "chain" => {
            let title = "Time inside BF.MEXISTS, for a filter that grew and one that was reserved";
            take("chain.svg", title, bars(title, &[("µs per call, of 100 items", of_commands(&rows))])?);
        }
        "saving" => {
            let title = "Duration of BF.ADD of another client during a save";
            let of = |part: &str| of_phases(&rows, &format!("us of BF.ADD from another client, {part}"));
            take("saving.svg", title, bars(title, &[("µs, 99%", of("99%")), ("µs, 99.9%", of("99.9%"))])?);
        }
        "scale" => {
            let title = "Time per added item by filter size";
            take("scale-add.svg", title, by_size(title, &of_sizes(&rows, "ns/item of BF.MADD"))?);
            let title = "Time per looked-up item by filter size";
            take("scale-lookup.svg", title, by_size(title, &of_sizes(&rows, "ns/item of BF.MEXISTS"))?);
        }
        "limit" => {
            let title = "Adds per second while one filter fills";
            let adds = [("BF.MADD of 100 items", "items/s", 1e-6)];
            take("limit-add.svg", title, by_fill(title, "million items per second", &of_fills(&rows, &adds))?);
            let title = "Time per lookup while one filter fills";
            let lookups =
                [("BF.EXISTS", "us/BF.EXISTS", 1.0), ("an item of BF.MEXISTS", "ns/item of BF.MEXISTS", 1e-3)];
            take("limit-lookup.svg", title, by_fill(title, "µs, inside the command", &of_fills(&rows, &lookups))?);
        }
        _ => {}
    }
    Ok(plots)
}

/// A bar, or a point of a line.
struct Figure {
    variant: String,
    /// The command and the filter, the size, or the fill in percent.
    about: String,
    /// The time, or for adds the rate.
    time: f64,
}

impl Figure {
    /// The value of a column, if it was measured.
    fn read(row: &Row, about: String, column: &str) -> Option<Self> {
        Some(Self { variant: row["variant"].clone(), about, time: row[column].parse().ok()? })
    }
}

/// The plot for a table of commands, in microseconds. The server's own commands, which have no filter, are omitted.
fn of_commands(rows: &[Row]) -> Vec<Figure> {
    let about = |row: &Row| format!("{} · {}", row["command"], row["filter"]);
    let rows = rows.iter().filter(|row| !row["filter"].is_empty());
    rows.filter_map(|row| Figure::read(row, about(row), "us/call")).collect()
}

/// The plot for a table of phases, in microseconds, with the bars of one phase side by side.
fn of_phases(rows: &[Row], column: &str) -> Vec<Figure> {
    let mut phases: Vec<&str> = Vec::new();
    rows.iter().for_each(|row| phases.extend((!phases.contains(&&*row["phase"])).then_some(&*row["phase"])));
    let of = |phase| rows.iter().filter(move |row| row["phase"] == phase);
    phases
        .iter()
        .flat_map(|phase| of(*phase))
        .filter_map(|row| Figure::read(row, row["phase"].clone(), column))
        .collect()
}

/// The plots for a table of sizes, in nanoseconds, of filters that do not grow.
fn of_sizes(rows: &[Row], column: &str) -> Vec<Figure> {
    let rows = rows.iter().filter(|row| row["filter"] == "fixed");
    rows.filter_map(|row| Figure::read(row, row["items"].clone(), column)).collect()
}

/// The plots for a table of fills: each line has a name, and is a column times a factor.
fn of_fills(rows: &[Row], columns: &[(&str, &str, f64)]) -> Vec<Figure> {
    let point = |row: &Row, (name, column, factor): (&str, &str, f64)| {
        let time = row[column].parse::<f64>().ok()? * factor;
        Some(Figure { variant: name.to_owned(), about: row["fill, %"].clone(), time })
    };
    columns.iter().flat_map(|column| rows.iter().filter_map(|row| point(row, *column))).collect()
}

/// Returns the distinct names of the variants.
fn variants<'a>(figures: impl Iterator<Item = &'a Figure>) -> Vec<&'a str> {
    let mut names = Vec::new();
    figures.for_each(|figure| names.extend((!names.contains(&&*figure.variant)).then_some(&*figure.variant)));
    names
}

/// Draws panels of bars below one another, each with its own scale. The bars of one group are together under its name.
fn bars(title: &str, panels: &[(&str, Vec<Figure>)]) -> Result<Option<String>> {
    let groups = |bars: &[Figure]| bars.chunk_by(|one, other| one.about == other.about).count();
    let slots = |bars: &[Figure]| (bars.len() + groups(bars)) as u32;
    let height = |bars: &[Figure]| slots(bars) * BAR + SCALE;
    let variants = variants(panels.iter().flat_map(|(_, bars)| bars));
    draw(title, &variants, panels.iter().map(|(_, bars)| height(bars)).sum(), |mut area| {
        for (axis, bars) in panels.iter().filter(|(_, bars)| !bars.is_empty()) {
            let (panel, below) = area.split_vertically(height(bars));
            area = below;
            let longest = bars.iter().map(|bar| bar.time).fold(f64::MIN_POSITIVE, f64::max);
            let mut y = f64::from(slots(bars));
            let mut chart = ChartBuilder::on(&panel)
                .margin_left(MARGIN)
                .margin_right(MARGIN)
                .margin_bottom(24)
                .x_label_area_size(48)
                .build_cartesian_2d(0.0..1.12 * longest, 0.0..y)?;
            let mut mesh = chart.configure_mesh();
            mesh.disable_y_mesh().disable_y_axis().x_desc(*axis).x_label_formatter(&|time| label(*time));
            styled(&mut mesh)?;
            for group in bars.chunk_by(|one, other| one.about == other.about) {
                chart.draw_series([Text::new(group[0].about.clone(), (0.0, y - 0.2), text(14))])?;
                y -= 1.0;
                for bar in group {
                    let place = [(0.0, y - 0.15), (bar.time, y - 0.85)];
                    chart.draw_series([Rectangle::new(place, colour(&variants, &bar.variant).filled())])?;
                    let value = Text::new(significant(bar.time, 3), (6, 0), text(12).pos(AFTER));
                    chart.draw_series([EmptyElement::at((bar.time, y - 0.5)) + value])?;
                    y -= 1.0;
                }
            }
        }
        Ok(())
    })
}

/// The place of a point on the horizontal axis.
fn place(point: &Figure) -> f64 {
    point.about.parse().unwrap_or(1.0)
}

/// Draws lines over a logarithmic scale of sizes.
fn by_size(title: &str, points: &[Figure]) -> Result<Option<String>> {
    let first = points.iter().map(place).fold(f64::MAX, f64::min);
    let last = points.iter().map(place).fold(10.0 * first, f64::max);
    let names = ["items in the filter", "ns an item, inside the command"];
    lines(title, names, (first..last).log_scale(), size, points)
}

/// Draws lines over the fill of a filter.
fn by_fill(title: &str, unit: &str, points: &[Figure]) -> Result<Option<String>> {
    let last = points.iter().map(place).fold(f64::MIN_POSITIVE, f64::max);
    lines(title, ["% of the capacity", unit], 0.0..last, label, points)
}

/// Draws lines over a horizontal axis; the vertical one begins at 0.
fn lines<X>(
    title: &str,
    [name, unit]: [&str; 2],
    axis: X,
    mark: fn(f64) -> String,
    points: &[Figure],
) -> Result<Option<String>>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    let highest = points.iter().map(|point| point.time).fold(f64::MIN_POSITIVE, f64::max);
    let variants = variants(points.iter());
    draw(title, &variants, LINES, |area| {
        let mut chart = ChartBuilder::on(&area)
            .margin_right(4 * MARGIN)
            .margin_left(MARGIN)
            .margin_bottom(MARGIN)
            .x_label_area_size(52)
            .y_label_area_size(60)
            .build_cartesian_2d(axis, 0.0..1.1 * highest)?;
        let mut mesh = chart.configure_mesh();
        let mark = |number: &f64| mark(*number);
        mesh.x_desc(name).x_label_formatter(&mark);
        mesh.y_desc(unit).y_label_formatter(&|number| label(*number));
        styled(&mut mesh)?;
        for variant in &variants {
            let colour = colour(&variants, variant);
            let points = points.iter().filter(|point| point.variant == *variant);
            let places = points.map(|point| (place(point), point.time));
            chart.draw_series(LineSeries::new(places, colour.stroke_width(2).filled()).point_size(4))?;
        }
        Ok(())
    })
}

/// The alignment of text to the right of its position.
const AFTER: Pos = Pos { h_pos: HPos::Left, v_pos: VPos::Center };

/// Draws an image of this height with the title and the names of the variants. Returns nothing if there are no names.
fn draw(
    title: &str,
    variants: &[&str],
    height: u32,
    plot: impl FnOnce(Area<'_>) -> Result<()>,
) -> Result<Option<String>> {
    if variants.is_empty() {
        return Ok(None);
    }
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (WIDTH, HEAD + height)).into_drawing_area();
    let (head, below) = area.split_vertically(HEAD);
    head.draw_text(title, &text(16), (MARGIN as i32, 14))?;
    let mut x = MARGIN as i32;
    for variant in variants {
        head.draw(&Rectangle::new([(x, 44), (x + 12, 56)], colour(variants, variant).filled()))?;
        head.draw_text(variant, &text(14).pos(AFTER), (x + 18, 50))?;
        x += 44 + head.estimate_text_size(variant, &text(14))?.0 as i32;
    }
    plot(below)?;
    area.present()?;
    drop((area, head));
    Ok(Some(svg))
}

fn colour(variants: &[&str], variant: &str) -> RGBColor {
    let place = variants.iter().position(|name| *name == variant).unwrap_or_default();
    COLOURS[place % COLOURS.len()]
}

/// Text of this size in pixels. The library's sizes include ascenders and descenders.
fn text(pixels: u32) -> TextStyle<'static> {
    ("sans-serif", f64::from(pixels) * 1.24).into_font().color(&INK)
}

fn styled<X, Y, DB>(mesh: &mut MeshStyle<'_, '_, X, Y, DB>) -> Result<()>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    DB: DrawingBackend<ErrorType = std::io::Error>,
{
    mesh.label_style(text(12)).axis_desc_style(text(13));
    mesh.axis_style(INK).bold_line_style(INK.mix(0.3)).light_line_style(TRANSPARENT).draw()?;
    Ok(())
}

/// Formats a number on an axis.
fn label(number: f64) -> String {
    // Sums on a scale have rounding errors.
    format!("{}", (number * 1e6).round() / 1e6)
}

/// Formats a power of ten for people.
fn size(number: f64) -> String {
    let (unit, name) = match number {
        ..1e3 => (1.0, ""),
        ..1e6 => (1e3, " thousand"),
        ..1e9 => (1e6, " million"),
        _ => (1e9, " billion"),
    };
    format!("{}{name}", (number / unit).round())
}

#[cfg(test)]
#[allow(unused, reason = "cargo bench compiles this too, without the test functions")]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn stored_plots_match_the_stored_figures() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results");
        let mut drawn = Vec::new();
        let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        for table in files.filter(|path| path.extension().is_some_and(|ending| ending == "csv")) {
            let name = table.file_stem().unwrap().to_str().unwrap();
            for plot in of(name, &fs::read_to_string(&table).unwrap()).unwrap() {
                let stored = fs::read_to_string(folder.join(plot.file)).unwrap();
                assert!(stored == plot.svg, "{}: scripts/bench --plots benches/results draws it again", plot.file);
                drawn.push(plot.file.to_owned());
            }
        }
        drawn.sort();
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut stored: Vec<_> = files.filter(|name| name.ends_with(".svg")).collect();
        stored.sort();
        assert_eq!(drawn, stored);
    }

    #[test]
    fn a_bar_is_proportional_to_its_time_and_missing_figures_have_none() {
        let csv = "command,filter,variant,us/call\nEXISTS,,server's own,2\nBF.ADD,large,ours,1\nBF.ADD,large,theirs,4\n\
                   BF.CARD,large,ours,2\nBF.CARD,large,theirs,\n";
        let plots = of("commands", csv).unwrap();
        let boxes = plots[0].svg.lines().filter(|line| line.starts_with("<rect"));
        let width = |line: &str| line.split("width=\"").nth(1)?.split('"').next()?.parse::<i32>().ok();
        let widths: Vec<i32> = boxes.filter_map(width).collect();
        // After the entries of the names.
        let [_, _, one, four, two] = widths.as_slice() else { panic!("{}", plots[0].svg) };
        assert!((four - 4 * one).abs() <= 4 && (two - 2 * one).abs() <= 2, "{widths:?}");
    }

    #[test]
    fn the_limit_has_a_plot_of_adds_and_one_of_both_lookups() {
        let csv = "\"fill, %\",items/s,us/BF.EXISTS,ns/item of BF.MEXISTS\n50,4000000,0.4,100\n100,2000000,0.8,200\n";
        let plots = of("limit", csv).unwrap();
        assert_eq!(plots.iter().map(|plot| plot.file).collect::<Vec<_>>(), ["limit-add.svg", "limit-lookup.svg"]);
        // The heights of the points of each line, in the order of the lines.
        let heights = |plot: &Plot| -> Vec<i32> {
            let points = plot.svg.lines().filter(|line| line.starts_with("<circle"));
            points.filter_map(|line| line.split("cy=\"").nth(1)?.split('"').next()?.parse().ok()).collect()
        };
        let [half, full] = heights(&plots[0])[..] else { panic!("{}", plots[0].svg) };
        assert!(half < full, "adds get slower, so their line falls: {half} and {full} pixels from the top");
        let [one, one_full, many, many_full] = heights(&plots[1])[..] else { panic!("{}", plots[1].svg) };
        assert!(one_full < one && one < many_full && many_full < many, "{one} {one_full} {many} {many_full}");
    }

    #[test]
    fn no_figures_give_no_plot() {
        for (table, csv) in [
            ("commands", "command,filter,variant,us/call\nBF.ADD,large,ours,\n"),
            ("scale", "items,filter,variant,ns/item of BF.MADD,ns/item of BF.MEXISTS\n100000,fixed,ours,,\n"),
            ("limit", "\"fill, %\",items/s,us/BF.EXISTS,ns/item of BF.MEXISTS\n10,,,\n"),
            ("snapshot", "measure,bloomgate\nfork,1\n"),
        ] {
            assert!(of(table, csv).unwrap().is_empty(), "{table}");
        }
    }

    #[test]
    fn sizes_and_numbers_are_readable() {
        assert_eq!([10.0, 1e5, 1e7, 1e9].map(size), ["10", "100 thousand", "10 million", "1 billion"]);
        assert_eq!([0.0, 0.1 + 0.2, 20.0].map(label), ["0", "0.3", "20"]);
    }
}
