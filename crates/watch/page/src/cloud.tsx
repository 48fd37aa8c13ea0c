// The ternary diagram: a point for each second in which connections ended, fading by age.
import type { Profile, Row, Shares } from "./board.ts";
import { SHARES, heldSpan } from "./board.ts";
import { percent, span as spanText } from "./format.ts";
import { CORNERS, boundaries, dots, labels, ofShares, path, plot } from "./ternary.ts";

interface Props {
  rows: readonly Row[];
  shares: Shares | null;
  // The length of the span, in seconds.
  spanS: number;
  profile: Profile;
  now: number;
}

// Around a triangle whose corners are 200 from its center.
const VIEW_BOX = "-262 -232 524 386";
const GRID = plot.gridLines(5).flat();

export function Cloud({ rows, shares, spanS, profile, now }: Props) {
  const span = heldSpan(profile);
  const points = dots(rows, now, span);
  const says = shares === null ? "no connection ended" : sentence(shares);
  return (
    <figure class="cloud">
      <svg
        viewBox={VIEW_BOX}
        role="img"
        aria-label={`Ternary picture: ${points.length} seconds with ended connections in the last ${spanText(span)}; in the last ${spanText(spanS)}, ${says}`}
      >
        <Frame profile={profile} />
        <g class="dots">
          {points.map(({ t, at: [x, y], age }) => (
            <circle key={t} data-t={t} class={`age${age}`} cx={x.toFixed(2)} cy={y.toFixed(2)} r="3.2" />
          ))}
        </g>
        {shares !== null && <Mark shares={shares} />}
      </svg>
      <figcaption>
        {shares === null ? (
          <>No connection ended in the last {spanText(spanS)}, so no X, Y and Z.</>
        ) : (
          <>
            <span class="ring" aria-hidden="true" /> last {spanText(spanS)}: {says}
          </>
        )}
      </figcaption>
    </figure>
  );
}

function sentence(shares: Shares): string {
  return SHARES.map(({ letter, name, value }) => `${letter} ${percent(value(shares))} ${name}`).join(", ");
}

function Frame({ profile }: { profile: Profile }) {
  const limits = boundaries(profile);
  const { sNormal, clientAbort, timeout } = CORNERS;
  return (
    <g class="frame" aria-hidden="true">
      {limits.map(({ label, area }) => (
        <path key={label} class="beyond" d={path(area, true)} />
      ))}
      {GRID.map((line, at) => (
        <path key={at} class="grid" d={path(line)} />
      ))}
      <path class="triangle" d={plot.triangle()} />
      {limits.map(({ label, line }) => (
        <path key={label} class="limit" d={path(line)} />
      ))}
      {labels(limits).map(({ label, x, y, anchor }) => (
        <text key={label} class="limit" x={x.toFixed(1)} y={y.toFixed(1)} text-anchor={anchor}>
          {label}
        </text>
      ))}
      <text class="corner" x={sNormal[0]} y={sNormal[1] + 20} text-anchor="start" dx="-20">
        X delivered
      </text>
      <text class="corner" x={clientAbort[0]} y={clientAbort[1] + 20} text-anchor="end" dx="20">
        Y client aborts
      </text>
      <text class="corner" x={timeout[0]} y={timeout[1] - 12} text-anchor="middle">
        Z timeouts
      </text>
    </g>
  );
}

function Mark({ shares }: { shares: Shares }) {
  const [x, y] = plot(ofShares(shares));
  return (
    <g class="mark" transform={`translate(${x.toFixed(2)} ${y.toFixed(2)})`}>
      <circle class="halo" r="10" />
      <circle class="ring" r="10" />
      <path d="M-15,0H-5M5,0H15M0,-15V-5M0,5V15" />
    </g>
  );
}
