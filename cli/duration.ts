// Lengths of time for people. Not for records: those hold seconds.
/** `3 h 20 min`, `2 min 5 s`, `7 s`, from seconds; to the second below an hour, to the minute above. */
export function formatDuration(seconds: number): string {
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  return hours > 0 ? `${hours} h ${minutes} min` : minutes > 0 ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}
