package operate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/store"
)

// What varies from one run to the next in reasons that are alike otherwise.
var (
	quotedText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^'\s]*'|` + "`[^`]*`")
	hexNumber  = regexp.MustCompile(`\b(?:0x)?[0-9a-fA-F]*[0-9][0-9a-fA-F]*(?:-[0-9a-fA-F]+)*\b`)
	digits     = regexp.MustCompile(`[0-9]+(?:[.:,][0-9]+)*`)
)

// likeness is the first line of a reason, with # for numbers, hexadecimal digits and what
// is quoted.
func likeness(reason string) string {
	line, _, _ := strings.Cut(strings.ToValidUTF8(reason, "\ufffd"), "\n")
	line = quotedText.ReplaceAllString(line, "#")
	line = hexNumber.ReplaceAllStringFunc(line, func(word string) string {
		if len(word) >= 6 || strings.HasPrefix(word, "0x") {
			return "#"
		}
		return word
	})
	line = digits.ReplaceAllString(line, "#")
	return storable.Clip(line, textMost)
}

// likesMost bounds the reasons whose likenesses are kept.
const likesMost = 2 * store.MaxProblems

// likes keeps the likenesses of reasons: a page of problems that is open asks for the same
// five thousand again and again.
type likes struct {
	mu    sync.Mutex
	known map[string]string
}

func (l *likes) of(reason string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	like, known := l.known[reason]
	if !known {
		if l.known == nil || len(l.known) >= likesMost {
			l.known = map[string]string{}
		}
		like = likeness(reason)
		l.known[reason] = like
	}
	return like
}

// groupID identifies the group of a job and a likeness.
func groupID(job, like string) string {
	sum := sha256.Sum256([]byte(job + "\x00" + like))
	return hex.EncodeToString(sum[:6])
}

// Problems groups the dead runs that ended last by job and by likeness of their reasons.
// At most store.MaxProblems are read.
func (o *Operator) Problems(ctx context.Context, filter ProblemFilter) (ProblemList, error) {
	list := ProblemList{Groups: []ProblemGroup{}}
	for _, name := range slices.Concat(filter.Jobs, filter.Queues) {
		if err := checkWanted(name); err != nil {
			return list, err
		}
	}
	problems, err := o.store.Problems(ctx, filter.stored()) // as they are stored: the groups are what they are for all
	if err != nil {
		return list, err
	}
	list.Read = store.Count{N: int64(len(problems)), AtLeast: len(problems) >= store.MaxProblems}
	type alike struct{ job, like string }
	at := map[alike]int{}
	for i := range problems {
		p := &problems[i]
		of := alike{p.Job, o.likes.of(p.Reason)}
		n, known := at[of]
		if !known {
			n, at[of] = len(list.Groups), len(list.Groups)
			list.Groups = append(list.Groups, newGroup(groupID(of.job, of.like), of.like, p))
		}
		group := &list.Groups[n]
		group.Count++
		group.FirstAt = p.EndedAt // the newest come first
		if !slices.Contains(group.Queues, p.Queue) {
			group.Queues = append(group.Queues, p.Queue)
		}
	}
	for i := range list.Groups {
		if o.hides&HideTexts != 0 {
			list.Groups[i].Like, list.Groups[i].Reason = Mask, Mask
		}
	}
	return list, nil
}

// shown are dead runs with their reasons as they may be shown.
func (o *Operator) shown(problems []store.Problem) []store.Problem {
	if o.hides&HideTexts == 0 {
		return problems
	}
	problems = slices.Clone(problems)
	for i := range problems {
		problems[i].Reason = Mask
	}
	return problems
}

// newGroup returns the group whose newest run is newest.
func newGroup(id, like string, newest *store.Problem) ProblemGroup {
	group := ProblemGroup{ID: id, Job: newest.Job, Like: like, Reason: newest.Reason, Queues: []string{}, LastAt: newest.EndedAt, Newest: newest.Run,
		AcknowledgedAt: newest.AcknowledgedAt}
	if newest.AcknowledgedBy != "" {
		group.AcknowledgedBy = &newest.AcknowledgedBy
	}
	return group
}

func (f *ProblemFilter) stored() store.ProblemFilter {
	filter := store.ProblemFilter{Jobs: f.Jobs, Queues: f.Queues, Since: f.Since}
	if f.Acknowledged {
		filter.Scope = store.AcknowledgedProblems
	}
	return filter
}

// ChangeProblem retries, acknowledges or deletes the open runs of one group, as far as
// they are among the newest store.MaxProblems, and calls progress, which may be nil, now
// and then. A group that is not there is ErrNotFound. The audit log has one row for all of it,
// of the kind bulk, which says the likeness in its reason.
func (a *Actor) ChangeProblem(ctx context.Context, action store.RunAction, id, reason string, progress func(Bulk)) (Bulk, error) {
	if !slices.Contains([]store.RunAction{store.RetryRuns, store.AcknowledgeRuns, store.DeleteRuns}, action) {
		return Bulk{}, fmt.Errorf("%w: action %q: want %s, %s or %s", store.ErrInvalid, action, store.RetryRuns, store.AcknowledgeRuns, store.DeleteRuns)
	}
	var done Bulk
	var command *store.RunCommand
	defer func() {
		if command != nil {
			a.noteBulk(command.Bulk, action, reason, done)
		}
	}()
	seen := map[store.RunID]bool{}
	for {
		problems, err := a.store.Problems(ctx, store.ProblemFilter{})
		if err != nil {
			return done, err
		}
		var ids []store.RunID
		for i := range problems {
			p := &problems[i]
			like := a.likes.of(p.Reason)
			if seen[p.Run] || groupID(p.Job, like) != id {
				continue
			}
			if command == nil {
				command = &store.RunCommand{Action: action, Reason: groupReason(reason, like),
					Bulk: &store.BulkChange{ID: uuid.New(), Filter: store.Filter{States: []store.State{store.Dead}, Jobs: []string{p.Job}}}}
			}
			seen[p.Run] = true
			ids = append(ids, p.Run)
		}
		if command == nil {
			return done, fmt.Errorf("problem %q: %w", id, store.ErrNotFound)
		}
		if len(ids) == 0 {
			return done, nil
		}
		for some := range slices.Chunk(ids, store.MaxCommandRuns) {
			command.Runs = some
			changed, err := a.Change(ctx, *command)
			done.add(changed.Runs)
			if err != nil {
				return done, err
			}
			if progress != nil {
				progress(done)
			}
		}
		if len(problems) < store.MaxProblems {
			return done, nil
		}
	}
}

// likeMark begins what the audit log says of a group.
const likeMark = "reason like: "

// likenessIn reports whether the reason of a change has the likeness of errors in it.
func likenessIn(reason string) bool { return strings.Contains(reason, likeMark) }

// groupReason is what the audit log says of a change to a group.
func groupReason(reason, like string) string {
	text := likeMark + like
	if reason != "" {
		text = reason + "; " + text
	}
	return storable.Clip(text, reasonMost)
}

// reasonMost bounds the reason of a command in bytes.
const reasonMost = 1000
