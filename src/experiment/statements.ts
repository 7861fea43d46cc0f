// The sentences of an experiment's report: the result, and what it can and cannot show.
// Not opinions: each follows from counts in the report. Invariant: a diagnostic is never called a result of selection,
// and an absence of loss is never called safety.
import { formatNumber, formatPercent, formatPoints, formatSignedPoints } from '../report/format.ts';
import type { Plan } from './plan.ts';
import type { ReportContent } from './report.ts';

type Part = Omit<ReportContent, 'headline' | 'canShow' | 'cannotShow'>;

function headline({ selection, final, retention, recommendation }: Part): string {
  if (!selection) return 'The experiment is under way: no step has been selected yet.';
  const chosen =
    selection.selected === null
      ? `No step was eligible on DEV; the baseline stays the recommendation, and step ${selection.assessed} was ` +
        'assessed as a diagnostic.'
      : `Step ${selection.selected} was selected on DEV.`;
  if (!final) return `${chosen} It has not been assessed yet.`;
  const { interval } = final.difference;
  const range = interval ? `${formatSignedPoints(interval.low)} to ${formatSignedPoints(interval.high)}` : 'none';
  const result =
    ` On fresh episodes strict success was ${formatPercent(final.a.rate)} for the baseline and ` +
    `${formatPercent(final.b.rate)} for step ${selection.assessed} (${formatPoints(final.difference.difference)}; ` +
    `95 % paired interval ${range}).`;
  const kept = retention
    ? retention.verdict.overall.baseline === 0
      ? ' The retention test shows nothing: the baseline answered none of its items correctly.'
      : retention.verdict.met
        ? ' No retention loss was observed.'
        : ' A retention loss was observed.'
    : '';
  return `${chosen}${result}${kept}${recommendation ? ` Recommended: ${recommendation.recommended}.` : ''}`;
}

export function statements(plan: Plan, part: Part): Pick<ReportContent, 'headline' | 'canShow' | 'cannotShow'> {
  const { training, qualification, final, retention } = part;
  const canShow: string[] = [];
  if (qualification?.passed) {
    canShow.push(
      `That on this device a run stopped after ${qualification.stopAfter} of ${qualification.steps} steps and ` +
        'resumed in a ' +
        'new process ends in the same bytes as an uninterrupted one: adapter, moments, schedule, RNG state and ' +
        'rollouts.',
    );
  }
  if (training) {
    canShow.push(
      `That the record holds together: ${formatNumber(training.audit.rollouts)} training rollouts were audited ` +
        'before ' +
        `they were trained on, with ${formatNumber(training.audit.findings)} findings.`,
    );
  }
  if (final) {
    canShow.push(
      `How the two policies differ on episodes like these: ${formatNumber(final.items)} items, ${final.seeds.length} ` +
        `generation seeds, ${formatNumber(final.wins)} items won and ${formatNumber(final.losses)} lost.`,
    );
  }
  if (retention && retention.verdict.overall.baseline > 0) {
    canShow.push(
      retention.verdict.met
        ? `That no loss was observed on ${formatNumber(retention.comparison.items)} items of the retention file, ` +
            'overall and at each seed.'
        : `That a loss was observed on ${formatNumber(retention.comparison.items)} items of the retention file, ` +
            'overall or at a seed.',
    );
  }
  const cannotShow = [
    `How much another training seed would differ: there is one run here, with seed ${plan.recipe.training.seed}.`,
    'Skills beyond this task: the episodes are synthetic and correlated, of 80 operand pairs; new ids and ' +
      'templates do ' +
      'not make new tasks.',
    'Absence of harm: zero observed loss on these items is no proof that there is none elsewhere.',
    'Anything from the training curves alone: a reward in training is a training signal, not an assessment.',
    'Equal compute: policies with equal token caps may still spend different amounts of it.',
    `Results of another kernel family than ${plan.kernels.family}: families are qualified and judged apart.`,
  ];
  const { caps } = part;
  for (const { set, cap, longestPrompt } of caps.sets) {
    if (cap >= caps.asked) continue;
    cannotShow.push(
      `How ${set} goes with ${formatNumber(caps.asked)} tokens an answer: beside its longest prompt, of ` +
        `${formatNumber(longestPrompt)} tokens, the model's ${formatNumber(caps.positions)} positions leave ` +
        `${formatNumber(cap)}, and every answer was held to that.`,
    );
  }
  if (final && final.wins + final.losses === 0) {
    cannotShow.push(
      'That the policies are equal: no item of the final assessment differs, and the bootstrap of equal items has no ' +
        'width, however few they are.',
    );
  }
  if (plan.recipe.final.policy === 'merged' && part.merge?.verdict === 'not equivalent') {
    cannotShow.push(
      'How the sealed adapter does: the merged model was assessed, and its audit says that it is not equivalent to base ' +
        'and adapter.',
    );
  }
  if (part.selection?.assessment === 'diagnostic') {
    cannotShow.push('A reason to promote the assessed step: it is a diagnostic, and no final test can promote it.');
  }
  if (retention && retention.verdict.overall.baseline === 0) {
    cannotShow.push(
      'That anything was retained: the baseline answered no retention item correctly, so none could be lost.',
    );
  }
  if (/llvmpipe|lavapipe|swiftshader/i.test(Object.values(part.device).join(' '))) {
    cannotShow.push('Speed on a GPU: the run used a software adapter.');
  }
  if (part.baselines.some(({ reused }) => reused)) {
    const suites = part.baselines.flatMap(({ suite, reused }) => (reused ? [suite] : []));
    cannotShow.push(
      `How the baseline does through this arm's own service on ${suites.join(', ')}: its evaluations there are the ` +
        "first arm's, so a fault of the transport alone would count as a difference of the policies.",
    );
  }
  return { headline: headline(part), canShow, cannotShow };
}
