package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/durable"
)

// HTTPArgs are the arguments of the job "http".
type HTTPArgs struct {
	URL  string          `json:"url"`
	Body json.RawMessage `json:"body"` // JSON, posted unchanged; none: {}
}

// What is read of an answer, bytes.
const (
	maxResult = 64 << 10 // a longer one is no result
	maxReason = 1 << 10  // of a refusal, for the error
)

// HTTP returns the job "http", which posts the body to the URL and judges by
// the status:
//
//   - 2xx: success. An answer that is JSON of at most 64 KiB is the result.
//   - 429 and 503 with Retry-After: again after that, at most a day.
//   - 408, 425, 429, 5xx and failures of the network: again by the retry policy.
//   - No connection for want of file descriptors or memory: again after some
//     seconds, without spending an attempt.
//   - Any other 4xx, and every redirect: dead immediately.
//
// The request says which run it is of: Idempotency-Key and Durable-Run-Id (the
// run's id, the same for every attempt), Durable-Attempt, Durable-Fence (rises
// with each attempt; refuse one smaller than the largest seen), and Traceparent with
// Tracestate: the attempt's span, if Config.Trace is set; else the Trace of the run;
// else a trace that is the run's id.
//
// One attempt may take a minute, unless the run says otherwise.
func HTTP() durable.Job[HTTPArgs] {
	return durable.NewJob[HTTPArgs](NameHTTP, durable.Timeout(time.Minute), durable.DeadOnMisfit())
}

func (j *Jobs) post(ctx context.Context, run *durable.Run[HTTPArgs]) error {
	request, err := j.request(ctx, run)
	if err != nil {
		return durable.Permanent(err)
	}
	response, err := j.client.Do(request)
	if connection, ok := errors.AsType[*net.OpError](err); ok && connection.Op == "dial" && ctx.Err() == nil && starved(connection) {
		return notBegun(run, fmt.Errorf("POST %s: %w", withoutQuery(request.URL.String()), connection))
	}
	if err != nil {
		return unanswered(ctx, request.URL, err)
	}
	defer func() { _ = response.Body.Close() }() // what was not read is of no use
	if response.StatusCode/100 == 2 {
		return accept(run, response)
	}
	return refused(request.URL, response)
}

// request is what is sent, if it is allowed.
func (j *Jobs) request(ctx context.Context, run *durable.Run[HTTPArgs]) (*http.Request, error) {
	if j.config.HTTPAllow.Empty() {
		return nil, fmt.Errorf("the job %s is not allowed on this worker: %s is not set", NameHTTP, j.config.HTTPHint)
	}
	u, err := j.config.HTTPAllow.find(run.Args.URL)
	switch {
	case errors.Is(err, errNotAllowed):
		return nil, fmt.Errorf("the URL %s is not allowed on this worker: nothing in %s covers it", withoutQuery(run.Args.URL), j.config.HTTPHint)
	case err != nil:
		return nil, fmt.Errorf("the URL %s is not allowed: %w", withoutQuery(run.Args.URL), err)
	}
	body := []byte(run.Args.Body)
	if len(body) == 0 {
		body = []byte("{}")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	fence := strconv.FormatInt(int64(run.Fence), 10)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "durable-worker",
		"Idempotency-Key": run.IdempotencyKey(), "Durable-Run-Id": run.ID.String(),
		"Durable-Attempt": strconv.Itoa(run.Attempt), "Durable-Fence": fence,
	} {
		request.Header.Set(name, value)
	}
	j.setTrace(ctx, run.RunInfo, request.Header)
	return request, nil
}

// withoutQuery is a URL as an error may say it: queries hold secrets.
func withoutQuery(text string) string {
	if before, _, found := strings.Cut(text, "?"); found {
		text = before + "?…"
	}
	if at := strings.LastIndex(text, "@"); at >= 0 {
		text = "…" + text[at:]
	}
	if len(text) > 200 {
		text = text[:200] + "…"
	}
	return strconv.QuoteToASCII(text)
}

// accept takes the answer of a success as the result, where it can be one.
func accept(run *durable.Run[HTTPArgs], response *http.Response) error {
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxResult+1))
	switch {
	case err != nil:
		run.Log().Warn("the response ended early and is not kept as the result", "event", "http.answer_broken", "error", err)
	case len(answer) > maxResult:
		run.Log().Warn("the answer is too long to be kept as the result", "event", "http.answer_too_long", "most", maxResult)
	case json.Valid(answer):
		if err := run.SetResult(json.RawMessage(answer)); err != nil {
			run.Log().Warn("the answer cannot be kept as the result", "event", "http.answer_not_kept", "error", err)
		}
	}
	return nil
}

// refused is what an answer other than success means.
func refused(u *url.URL, response *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxReason)) // what came of it
	err := fmt.Errorf("POST %s: %s", withoutQuery(u.String()), response.Status)
	if reason := strings.TrimSpace(string(text)); reason != "" {
		err = fmt.Errorf("%w: %s", err, reason)
	}
	switch code := response.StatusCode; {
	case code/100 == 3:
		return durable.Permanent(fmt.Errorf("%w (redirects are not followed; to %s)", err, withoutQuery(response.Header.Get("Location"))))
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		if after, ok := retryAfter(response.Header); ok {
			return durable.RetryAfter(after, err)
		}
		return err
	case code == http.StatusRequestTimeout || code == http.StatusTooEarly || code/100 == 5:
		return err
	default:
		return durable.Permanent(err)
	}
}

// retryAfter reads Retry-After: seconds, or an instant, which is compared with
// the server's own Date.
func retryAfter(header http.Header) (time.Duration, bool) {
	const most = 24 * time.Hour
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 63); err == nil {
		return time.Duration(min(seconds, uint64(most/time.Second))) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), most), true
}

// unanswered is what a request without an answer means.
func unanswered(ctx context.Context, u *url.URL, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("POST %s: %w", withoutQuery(u.String()), context.Cause(ctx))
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the URL, whose query it would repeat
	}
	err = fmt.Errorf("POST %s: %w", withoutQuery(u.String()), err)
	if _, ok := errors.AsType[*addressError](err); ok {
		return durable.Permanent(err)
	}
	return err
}
