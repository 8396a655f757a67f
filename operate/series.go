package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// ranges are the series that can be asked for.
var ranges = map[SeriesRange]struct { //nolint:gochecknoglobals // a constant table
	within, step time.Duration
	span         store.Span
}{
	LastHour:  {time.Hour, time.Minute, store.Minute},
	LastDay:   {24 * time.Hour, 15 * time.Minute, store.Quarter},
	LastWeek:  {7 * 24 * time.Hour, 2 * time.Hour, store.Quarter},
	LastMonth: {30 * 24 * time.Hour, 6 * time.Hour, store.Quarter},
}

// Series returns what was done, as workers have reported it. What a worker did in the
// seconds before it was killed is missing.
func (o *Operator) Series(ctx context.Context, request SeriesRequest) (Series, error) {
	if request.Range == "" {
		request.Range = LastHour
	}
	shape, known := ranges[request.Range]
	if !known {
		return Series{}, fmt.Errorf("%w: range %q: want 1h, 24h, 7d or 30d", store.ErrInvalid, request.Range)
	}
	query := store.SeriesQuery{Span: shape.span, Step: shape.step, Within: shape.within, Queue: request.Queue, Job: request.Job}
	if request.Queue+request.Job != "" {
		query.Scope = store.EachLane
	}
	points, err := o.points(ctx, query)
	if err != nil {
		return Series{}, err
	}
	survey, err := o.survey(ctx) // the store's clock
	if err != nil {
		return Series{}, err
	}
	return seriesOf(request.Range, points, survey.At), nil
}

// hourQuery asks for what was done by the minute in the last hour.
func hourQuery() store.SeriesQuery {
	return store.SeriesQuery{Span: store.Minute, Step: time.Minute, Scope: store.AllLanes, Within: figuresOf}
}

// points are those of a query. Those of the last hour are on every page.
func (o *Operator) points(ctx context.Context, query store.SeriesQuery) ([]store.SeriesPoint, error) {
	if query == hourQuery() {
		return o.hour(ctx)
	}
	return o.store.Series(ctx, query)
}

// seriesOf puts points into the steps of a range that ends now.
func seriesOf(of SeriesRange, points []store.SeriesPoint, now time.Time) Series {
	shape := ranges[of]
	series := Series{Range: of, At: now, Step: store.Duration(shape.step)}
	last := now.UTC().Truncate(shape.step)
	first := last.Add(shape.step - shape.within)
	sums := make([]store.Tally, int(shape.within/shape.step))
	var total store.Tally
	for i := range points {
		at := points[i].At.UTC().Truncate(shape.step)
		if at.Before(first) || at.After(last) {
			continue
		}
		sums[int(at.Sub(first)/shape.step)].Add(&points[i].Tally)
		total.Add(&points[i].Tally)
	}
	for i := range sums {
		series.Steps = append(series.Steps, stepOf(first.Add(time.Duration(i)*shape.step), &sums[i]))
	}
	series.Total = stepOf(first, &total)
	return series
}

func stepOf(at time.Time, t *store.Tally) SeriesStep {
	return SeriesStep{At: at, Enqueued: t.Enqueued, Succeeded: t.Succeeded, Failed: t.Failed, Dead: t.Dead, Cancelled: t.Cancelled,
		Crashed: t.Crashed, Busy: t.Busy, Wait: percentilesOf(&t.Wait), Took: percentilesOf(&t.Took)}
}

func percentilesOf(classes *[store.Buckets]int64) Percentiles {
	return Percentiles{P50: percentile(classes, 0.5), P95: percentile(classes, 0.95), P99: percentile(classes, 0.99)}
}

// percentile is the time within which a share of what was counted lies, taken to be spread
// evenly inside its class. Of the last class, which has no end, it is the beginning.
func percentile(classes *[store.Buckets]int64, share float64) *store.Duration {
	var total int64
	for _, n := range classes {
		total += n
	}
	if total == 0 {
		return nil
	}
	bounds := store.BucketBounds()
	wanted, below, from := share*float64(total), 0.0, time.Duration(0)
	for i, bound := range bounds {
		n := float64(classes[i])
		if n > 0 && below+n >= wanted {
			d := store.Duration(from + time.Duration(float64(bound-from)*(wanted-below)/n))
			return &d
		}
		below, from = below+n, bound
	}
	d := store.Duration(from)
	return &d
}
