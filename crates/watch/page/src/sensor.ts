// The counts of a sensor, as text. Each number has one unit.
import type { Sensor } from "./board.ts";
import { count, duration, offset } from "./format.ts";

export function sensorHealth(sensor: Sensor, now: number): string[] {
  const { last_report, clock_offset_s: ahead } = sensor;
  const ifAny = (value: number, what: string) => (value > 0 ? [`${count(value)} ${what}`] : []);
  return [
    ...(last_report > 0 ? [`${duration(now - last_report)} ago`] : []),
    `${count(sensor.packets)} packets`,
    `${count(sensor.dropped)} dropped by the sensor, ${count(sensor.dropped_by_interface)} by the interface`,
    `${count(sensor.evicted)} connections evicted, ${count(sensor.untracked)} packets of untracked connections`,
    `${count(sensor.stray)} stray packets`,
    ...ifAny(sensor.hanging, "capture threads hang"),
    ...ifAny(sensor.unwatched, "events at servers that are not watched, because there are too many"),
    ...ifAny(sensor.uncounted, "server seconds left out of reports, because there were too many servers"),
    ...ifAny(sensor.lost, "server seconds lost while disconnected"),
    ...ifAny(sensor.refused, "server seconds refused because of impossible times"),
    ...(ahead === null ? [] : [`its clock is ${offset(ahead)}`]),
  ];
}
