// The ternary picture: a point for each second in which connections ended, fading by age.
import type { Profile, Row, Shares } from "./board.ts";
import { heldSpan } from "./board.ts";
import { percent, span as spanText } from "./format.ts";
import { CORNERS, boundaries, dots, ofShares, path, plot } from "./ternary.ts";

interface Props {
  rows: readonly Row[];
  shares: Shares | null;
  profile: Profile;
  now: number;
}

// Around a triangle whose corners are 200 from its middle.
const VIEW_BOX = "-252 -232 504 366";
const GRID = plot.gridLines(5).flat();

export function Cloud({ rows, shares, profile, now }: Props) {
  const span = heldSpan(profile);
  const points = dots(rows, now, span);
  const says = shares === null ? "nothing ended" : sentence(shares);
  return (
    <figure class="cloud">
      <svg
        viewBox={VIEW_BOX}
        role="img"
        aria-label={`Ternary picture: ${points.length} seconds with ended connections in the last ${spanText(span)}; in the last ${spanText(profile.span_s)}, ${says}`}
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
          <>Nothing ended in the last {spanText(profile.span_s)}.</>
        ) : (
          <>
            <span class="ring" aria-hidden="true" /> last {spanText(profile.span_s)}: {says}
          </>
        )}
      </figcaption>
    </figure>
  );
}

function sentence({ s_normal, client_abort, timeout }: Shares): string {
  return `X ${percent(s_normal)} S_NORMAL, Y ${percent(client_abort)} client aborts, Z ${percent(timeout)} TIMEOUT`;
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
      {limits.map(({ label, line: [, [x, y]] }) => (
        <text key={label} class="limit" x={x} y={y} {...beside(x, y)}>
          {label}
        </text>
      ))}
      <text class="corner" x={sNormal[0]} y={sNormal[1] + 20} text-anchor="start" dx="-20">
        X S_NORMAL
      </text>
      <text class="corner" x={clientAbort[0]} y={clientAbort[1] + 20} text-anchor="end" dx="20">
        Y client aborts
      </text>
      <text class="corner" x={timeout[0]} y={timeout[1] - 12} text-anchor="middle">
        Z TIMEOUT
      </text>
    </g>
  );
}

// A line's name stands outside of the triangle, at the line's end.
function beside(x: number, y: number) {
  if (y > 95) return { dy: 16, "text-anchor": "middle" };
  return x < 0 ? { dx: -8, "text-anchor": "end" } : { dx: 8, "text-anchor": "start" };
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
