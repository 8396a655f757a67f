package operate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

// ownersShown bounds the owners of places that a text names.
const ownersShown = 3

// limits says which of its limits keep a run from starting.
func (e *explaining) limits() {
	due := !e.Facts.Run.DueAt.After(e.Facts.At)
	for i := range e.Gates {
		g := &e.Gates[i]
		if g.Use.Mode == store.LimitRelease || e.hasPermit(g) {
			continue
		}
		switch off := g.Limit.State == store.LimitOff || g.Limit.State == store.LimitRemoved; {
		case off:
		case g.Limit.Fault != "":
			e.block(Blocker{Kind: BlockerLimitFault, Text: limitName(g) + " cannot be applied, and admits nothing: " + g.Limit.Fault}, e.gateDetail(g),
				Remedy{"upgrade", RoleDeployer, "if a newer program has stored it, deploy that version everywhere", ""},
				Remedy{"off", RoleOperator, "turn the limit off", "limits off " + shellWord(g.Limit.Name)})
		case g.Limit.State == store.LimitDraining:
			e.block(Blocker{Kind: BlockerLimitDraining, Text: limitName(g) + " is draining: it admits nothing"}, e.gateDetail(g),
				Remedy{"resume", RoleOperator, "resume the limit", "limits resume " + shellWord(g.Limit.Name)},
				Remedy{"off", RoleOperator, "turn the limit off", "limits off " + shellWord(g.Limit.Name)})
		default:
			e.limit(g, due)
		}
	}
	for _, text := range e.Facts.Run.Limits {
		if _, err := store.ParseLimitUse(text); err != nil {
			e.block(Blocker{Kind: BlockerLimitFault, Text: "this program cannot read what the run says of its limits: " + err.Error()}, nil,
				Remedy{"upgrade", RoleDeployer, "if a newer program has stored it, deploy that version everywhere", ""})
		}
	}
	if len(e.Gates) > 0 && due {
		e.Ahead = &store.Count{}
		for i := range e.Gates {
			if place, more := e.place(&e.Gates[i]); int64(place) >= e.Ahead.N && e.Gates[i].Limit.State != store.LimitOff {
				e.Ahead = &store.Count{N: int64(place), AtLeast: more}
			}
		}
	}
}

// limit says what of an active limit keeps a run from starting: nothing, perhaps.
func (e *explaining) limit(g *store.GateFacts, due bool) {
	var why []string
	b := Blocker{Kind: BlockerLimit}
	weight := min(g.Use.Places(), max(g.Limit.Capacity(), 1))
	place, more := e.place(g)
	switch {
	case g.NotBefore != nil && g.NotBefore.After(e.Facts.At):
		why, b.EndsAt = append(why, "it is penalized for another "+span(g.NotBefore.Sub(e.Facts.At))), g.NotBefore
	case g.Limit.Max == 0:
		why = append(why, "its max is 0")
	case !g.Limit.Rate() && g.InUse+weight > g.Limit.Max:
		why = append(why, inUse(g))
		b.EndsAt = freesAt(g.Permits)
	case g.Limit.Rate() && g.NextAt != nil && g.NextAt.After(e.Facts.At):
		why, b.EndsAt = append(why, "the next start is in "+span(g.NextAt.Sub(e.Facts.At))), g.NextAt
	}
	if due && place > 0 {
		why = append(why, counted(store.Count{N: int64(place), AtLeast: more}, "run is", "runs are")+" admitted first")
	}
	if len(why) == 0 {
		return
	}
	b.Text = limitName(g) + ": " + strings.Join(why, "; ")
	show := "limits show " + shellWord(g.Limit.Name)
	if g.Key != "" {
		show += " --key " + shellWord(g.Key)
	}
	next := []Remedy{{"show", RoleViewer, "see who has the places and who waits", show}}
	if g.Limit.Max == 0 {
		next = append(next, Remedy{"set", RoleOperator, "give the limit as many places as it shall have", "limits set " + shellWord(g.Limit.Name) + " --max 1"})
	}
	if g.Limit.Max > 0 && !g.Limit.Rate() {
		next = append(next, Remedy{"set", RoleOperator, "let the limit admit more", fmt.Sprintf("limits set %s --max %d", shellWord(g.Limit.Name), max(g.Limit.Max, g.InUse)+1)})
	}
	e.block(b, e.gateDetail(g), next...)
}

// inUse says how many places of a full limit are taken. More are than there are after it
// was lowered.
func inUse(g *store.GateFacts) string {
	if g.InUse > g.Limit.Max {
		return fmt.Sprintf("%d places are in use%s, and it was lowered to %d", g.InUse, owners(g.Permits), g.Limit.Max)
	}
	return fmt.Sprintf("%d of %d places are in use%s", g.InUse, g.Limit.Max, owners(g.Permits))
}

// hasPermit reports whether the run has the places already: since an earlier attempt, or
// because its named owner has them.
func (e *explaining) hasPermit(g *store.GateFacts) bool {
	owner := e.ID
	if g.Use.Mode == store.LimitAcquire {
		owner = admit.OwnerID(g.Use.Owner)
	}
	return slices.ContainsFunc(g.Permits, func(p store.PermitInfo) bool { return p.Owner == owner })
}

// place is how many runs are admitted before the run, as far as the list goes.
func (e *explaining) place(g *store.GateFacts) (place int, more bool) {
	at := slices.IndexFunc(g.Waiters, func(w store.Waiter) bool { return w.Run == e.ID })
	switch {
	case at >= 0:
		before := g.Waiters[:at]
		for i := range before {
			if !before[i].DueAt.After(e.Facts.At) {
				place++
			}
		}
		return place, false
	case g.Waiting.N > int64(len(g.Waiters)) && len(g.Waiters) > 0:
		return len(g.Waiters), true // behind those, or in the line of another of its limits
	default:
		return 0, false
	}
}

func (e *explaining) gateDetail(g *store.GateFacts) any {
	place, more := e.place(g)
	permits := make([]PermitView, 0, len(g.Permits))
	for i := range g.Permits[:min(len(g.Permits), namedMost)] {
		permits = append(permits, permitView(&g.Permits[i]))
	}
	return map[string]any{"limit": g.Limit.Name, "key": g.Key, "in_use": g.InUse, "max": g.Limit.Max, "kind": g.Limit.Kind, "weight": g.Use.Places(),
		"ahead": store.Count{N: int64(place), AtLeast: more}, "waiting": g.Waiting, "next_at": g.NextAt, "permits": permits}
}

func limitName(g *store.GateFacts) string {
	name := "limit " + g.Limit.Name
	if g.Key != "" {
		name += " for " + g.Key
	}
	return name
}

// owners names some of those who have the places.
func owners(permits []store.PermitInfo) string {
	var named []string
	for _, p := range permits[:min(len(permits), ownersShown)] {
		who := p.Worker
		if who == "" {
			who = "owner " + p.Owner.String()[:8]
		}
		if len(p.Runs) > 0 {
			who = "run " + p.Runs[0].String() + more(len(p.Runs)-1)
			if p.Worker != "" {
				who += " on " + p.Worker
			}
		}
		named = append(named, who)
	}
	if len(named) == 0 {
		return ""
	}
	return ", by " + strings.Join(named, ", ") + more(len(permits)-len(named))
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// freesAt is when a permit expires, if they all do.
func freesAt(permits []store.PermitInfo) (first *time.Time) {
	for i := range permits {
		at := permits[i].ExpiresAt
		if at == nil {
			return nil
		}
		if first == nil || at.Before(*first) {
			first = at
		}
	}
	return first
}
