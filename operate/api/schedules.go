package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/wire"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

func scheduleRoutes() []route {
	return []route{
		{"GET /schedules", []string{"name", "cursor", "limit"}, listSchedules},
		{"PUT /schedules", []string{"name"}, putSchedule},
		{"DELETE /schedules", []string{"name"}, deleteSchedule},
		{"GET /schedules/preview", []string{"name", "next", "past"}, previewSchedule},
		{"POST /schedules/preview", nil, previewDraft},
		{"POST /schedules/pause", nil, pauseSchedule},
		{"POST /schedules/resume", nil, resumeSchedule},
		{"POST /schedules/run-now", nil, runSchedule},
	}
}

// schedulesPage is how many schedules a page has, if it is not said: each may have large
// args.
const schedulesPage = 50

// listSchedules lists a part of all, or the one of a name.
func listSchedules(c *call) (answer, error) {
	name, part := c.Text("name"), operate.Part{After: c.Text("cursor"), Limit: int(c.Number("limit", 1, store.LargestPage, schedulesPage))}
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	if name != "" {
		return c.schedule(http.StatusOK, name)
	}
	list, err := c.op.Schedules(c.r.Context(), part)
	return ok(list), err
}

// schedule answers with one schedule, and with its generation as the ETag.
func (c *call) schedule(status int, name string) (answer, error) {
	record, err := c.op.Schedule(c.r.Context(), name)
	return answer{status: status, header: map[string]string{"Etag": strconv.Quote(strconv.FormatInt(record.Generation, 10))},
		body: operate.ScheduleList{Schedules: []store.ScheduleRecord{record}}}, err
}

// newSchedule is a schedule to be stored. What is left out is the job's.
type newSchedule struct {
	Job         string          `json:"job"`
	Rule        store.Rule      `json:"rule"`
	Plan        store.Plan      `json:"plan"`
	Args        json.RawMessage `json:"args"`
	Queue       *string         `json:"queue"`
	Priority    *int            `json:"priority"`
	MaxAttempts *int            `json:"max_attempts"`
	Timeout     *store.Duration `json:"timeout"`
	Tags        []string        `json:"tags"`
	Metadata    store.Metadata  `json:"metadata"`
	LimitedBy   []string        `json:"limited_by"`
	Paused      bool            `json:"paused"`
}

// putSchedule creates a schedule, or replaces the one of a generation.
func putSchedule(c *call) (answer, error) {
	name := c.Text("name")
	if name == "" {
		c.Refuse("name", "want the name of the schedule")
	}
	var given newSchedule
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	generation, err := generationOf(c.r.Header.Get("If-Match"))
	if err != nil {
		return answer{}, err
	}
	job, err := c.op.Job(c.r.Context(), given.Job)
	if err != nil {
		return answer{}, err
	}
	limits, faults := limitedBy(given.LimitedBy, "")
	if len(faults) > 0 {
		return answer{}, faults
	}
	s := store.Schedule{Name: name, Rule: given.Rule, Plan: given.Plan, Generation: generation, Job: job.Name, Queue: job.Queue,
		Priority: job.Priority, Args: []byte("{}"), MaxAttempts: job.MaxAttempts, Timeout: time.Duration(job.Timeout), OnCrash: job.OnCrash,
		Tags: given.Tags, Metadata: given.Metadata, Paused: given.Paused}
	if given.Args != nil {
		s.Args = given.Args
	}
	set(&s.Queue, given.Queue)
	set(&s.Priority, given.Priority)
	set(&s.MaxAttempts, given.MaxAttempts)
	set((*store.Duration)(&s.Timeout), given.Timeout)
	run := durable.RunOf(job, s.Args, limits...) // with the keys that the args give
	s.Limits = run.Limits
	_, err = c.op.SaveSchedule(c.r.Context(), s)
	switch {
	case errors.Is(err, store.ErrConflict) && generation != 0:
		return answer{}, with(http.StatusPreconditionFailed, err)
	case err != nil:
		return answer{}, placed(err)
	case generation == 0:
		return c.schedule(http.StatusCreated, name)
	default:
		return c.schedule(http.StatusOK, name)
	}
}

// set changes what was given.
func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// generationOf reads If-Match; without one it is 0: there must be no such schedule yet.
func generationOf(header string) (int64, error) {
	if header == "" {
		return 0, nil
	}
	text, quoted := strings.CutPrefix(header, `"`)
	text, closed := strings.CutSuffix(text, `"`)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || !quoted || !closed {
		return 0, wire.InBody("", "If-Match: want the ETag of the schedule, its generation in quotes, such as \"3\"")
	}
	return n, nil
}

func deleteSchedule(c *call) (answer, error) {
	name := c.Text("name")
	if name == "" {
		c.Refuse("name", "want the name of the schedule")
	}
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	deleted, err := c.op.DeleteSchedule(c.r.Context(), name)
	return ok(deleted), err
}

// The bounds of previews.
const (
	shownNext = 10
	mostShown = 100
)

func previewSchedule(c *call) (answer, error) {
	name := c.Text("name")
	if name == "" {
		c.Refuse("name", "want the name of a schedule")
	}
	next, past := int(c.Number("next", 0, mostShown, shownNext)), int(c.Number("past", 0, mostShown, shownNext))
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	preview, err := c.op.Preview(c.r.Context(), name, next, past)
	return ok(preview), err
}

// previewDraft says when a schedule would fire that is not stored.
func previewDraft(c *call) (answer, error) {
	var given struct {
		Name string     `json:"name"` // spreads its start
		Rule store.Rule `json:"rule"`
		Plan store.Plan `json:"plan"`
		Next *int       `json:"next"`
	}
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	next := shownNext
	set(&next, given.Next)
	if next < 1 || next > mostShown {
		return answer{}, wire.InBody("/next", "want a number from 1 to %d", mostShown)
	}
	if given.Name == "" {
		given.Name = "draft"
	}
	draft := store.Schedule{Name: given.Name, Rule: given.Rule, Plan: given.Plan, Job: "draft", Queue: store.DefaultQueue,
		Args: []byte("{}"), MaxAttempts: 1}
	if err := store.CheckSchedule(draft); err != nil {
		return answer{}, placed(err)
	}
	coming, err := draft.Preview(c.operator.Now(), next)
	if err != nil {
		return answer{}, placed(fmt.Errorf("%w: %w", store.ErrInvalid, err))
	}
	if coming == nil {
		coming = []time.Time{}
	}
	return ok(operate.Preview{Next: coming, Past: []store.HistoryEntry{}}), nil
}

// named is the body of a change of something that has a name.
type named struct {
	Name string `json:"name"`
}

func pauseSchedule(c *call) (answer, error) {
	var given named
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	if err := c.op.PauseSchedule(c.r.Context(), given.Name); err != nil {
		return answer{}, err
	}
	return c.schedule(http.StatusOK, given.Name)
}

func resumeSchedule(c *call) (answer, error) {
	var given named
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	if err := c.op.ResumeSchedule(c.r.Context(), given.Name); err != nil {
		return answer{}, err
	}
	return c.schedule(http.StatusOK, given.Name)
}

func runSchedule(c *call) (answer, error) {
	var given struct {
		Name    string              `json:"name"`
		Overlap store.OverlapPolicy `json:"overlap"`
	}
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	made, err := c.op.RunSchedule(c.r.Context(), given.Name, given.Overlap)
	return answer{status: http.StatusAccepted, body: made}, err
}
