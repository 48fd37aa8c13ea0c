//! Functions that run in the page, and check its look.

/// How many pixels of the first chart have a color of style.css.
pub(crate) const PIXELS: &str = r"(name) => {
    const chart = document.querySelector('.chart canvas');
    const made = document.createElement('canvas');
    Object.assign(made, { width: chart.width, height: chart.height });
    const copy = made.getContext('2d', { willReadFrequently: true });
    copy.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
    copy.fillRect(0, 0, 1, 1);
    const wanted = copy.getImageData(0, 0, 1, 1).data;
    copy.clearRect(0, 0, 1, 1);
    copy.drawImage(chart, 0, 0);
    const { data } = copy.getImageData(0, 0, chart.width, chart.height);
    let count = 0;
    for (let at = 0; at < data.length; at += 4) {
        if ([0, 1, 2, 3].every((part) => Math.abs(data[at + part] - wanted[part]) < 3)) count++;
    }
    return count;
}";

/// Whether the same part of two panels is at the same height, side by side.
pub(crate) const ARE_IN_LINE: &str = r"(selector) => {
    const [a, b] = [...document.querySelectorAll('.panel')].map((panel) => {
        const part = panel.matches(selector) ? panel : panel.querySelector(selector);
        return part.getBoundingClientRect();
    });
    return Math.abs(a.top - b.top) < 1 && a.right <= b.left && Math.abs(a.width - b.width) < 1;
}";

/// Whether the page needs no horizontal scrolling.
pub(crate) const HAS_NO_OVERFLOW: &str = "[document.documentElement, document.body, ...document.querySelectorAll('.scroll')].every((it) => it.scrollWidth <= it.clientWidth)";

/// Elements with text that extend beyond a side of the page.
pub(crate) const CUT_OFF: &str = r"() => [...document.querySelectorAll('#page *')].filter((element) => {
    const { left, right, width } = element.getBoundingClientRect();
    const isText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== '');
    return isText && width > 1 && (left < -0.5 || right > innerWidth + 0.5);
}).map((element) => element.outerHTML.slice(0, 200))";

/// Texts with less contrast to their background than `least` (WCAG 2.2, 1.4.3). Text on pictures is compared with the
/// sheet's color.
pub(crate) const PALE: &str = r"(least) => {
    const parse = (color) => {
        const made = document.createElement('canvas').getContext('2d');
        made.fillStyle = color;
        made.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = made.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const over = ([r, g, b, a], below) => [...[r, g, b].map((part, at) => part * a + below[at] * (1 - a)), 1];
    const ground = (element) => {
        const behind = [];
        for (let at = element; at !== null; at = at.parentElement) behind.push(parse(getComputedStyle(at).backgroundColor));
        return behind.reverse().reduce((below, color) => over(color, below), [255, 255, 255, 1]);
    };
    const light = (color) => {
        const [r, g, b] = color.slice(0, 3).map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const hidden = (element) => element.closest('.hidden') !== null || !element.checkVisibility();
    const texts = [...document.querySelectorAll('#page *')].filter((element) =>
        !hidden(element) && [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== ''));
    return texts.map((element) => {
        const style = getComputedStyle(element);
        const below = ground(element);
        const color = parse(element instanceof SVGElement ? style.fill : style.color);
        const opacity = [];
        for (let at = element; at !== null; at = at.parentElement) opacity.push(Number(getComputedStyle(at).opacity));
        color[3] *= opacity.reduce((all, part) => all * part, 1);
        const [brighter, darker] = [light(over(color, below)), light(below)].sort((a, b) => b - a);
        return [(brighter + 0.05) / (darker + 0.05), element.textContent, element.className?.baseVal ?? element.className];
    }).filter(([contrast]) => contrast < least);
}";

/// Texts of ternary diagrams that overlap.
pub(crate) const COVERED: &str = r"() => [...document.querySelectorAll('.cloud svg')].flatMap((svg) => {
    const texts = [...svg.querySelectorAll('text')].map((it) => [it.textContent, it.getBoundingClientRect()]);
    const within = svg.getBoundingClientRect();
    const out = texts.filter(([, it]) => it.left < within.left || it.right > within.right || it.top < within.top || it.bottom > within.bottom);
    const pairs = texts.flatMap(([name, a], at) => texts.slice(at + 1).filter(([, b]) =>
        a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom).map(([other]) => `${name} on ${other}`));
    return [...out.map(([name]) => `${name} is cut`), ...pairs];
})";
