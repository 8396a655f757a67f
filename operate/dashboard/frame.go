package dashboard

import (
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// frame is what every page shows around its own content.
type frame struct {
	Root    string // the way to the root of the pages, as "../"
	Title   string
	Product string
	Section string
	Nav     []navGroup
	Head    figures
	Now     time.Time
	Who     person
	Notice  *notice
	Data    any
	Posted  bool   // this is an answer to a form: it is not fetched again
	Here    string // address of this page within the pages

	files files
}

// navGroup is a part of the menu.
type navGroup struct {
	Name  string
	Items []navItem
}

// navItem leads to one section.
type navItem struct {
	Section, Path, Name, Key string
	Badge                    string // a figure
	Alarm                    bool   // it is one to look at
}

func (d *dashboard) frame(r *request, made view) frame {
	head := d.headers.shown()
	f := frame{Root: root(r.URL.Path), Title: made.title, Product: d.config.Title, Section: made.section, Head: head, Now: r.now,
		Who: r.who, Notice: noticeOf(r.form), Data: made.data, Here: here(r), Posted: r.Method == http.MethodPost, files: d.files}
	if r.who.Known {
		f.Nav = nav(&head)
	}
	return f
}

// here is the address of the page within the pages, without what was done before.
func here(r *request) string {
	query := r.URL.Query()
	for _, name := range noticeNames {
		query.Del(name)
	}
	address := strings.TrimPrefix(r.URL.EscapedPath(), "/")
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	return address
}

// File is the address of a style or script.
func (f frame) File(name string) string { return f.Root + "assets/" + f.files.address[name] }

// nav is the menu with its figures.
func nav(head *figures) []navGroup {
	badge := func(n float64) string {
		if n == 0 {
			return ""
		}
		return rough(int64(n))
	}
	return []navGroup{
		{"Work", []navItem{
			{Section: "overview", Path: "", Name: "Overview", Key: "o"},
			{Section: "runs", Path: "runs", Name: "Runs", Key: "r", Badge: badge(float64(head.Counts[store.Running].N))},
			{Section: "batches", Path: "batches", Name: "Batches", Key: "b"},
			{Section: "problems", Path: "problems", Name: "Problems", Key: "p", Badge: badge(head.Dead.N), Alarm: true},
		}},
		{"Flow", []navItem{
			{Section: "queues", Path: "queues", Name: "Queues", Key: "q", Badge: badge(head.Due.N)},
			{Section: "jobs", Path: "jobs", Name: "Jobs", Key: "j"},
			{Section: "schedules", Path: "schedules", Name: "Schedules", Key: "s"},
		}},
		{"Capacity", []navItem{
			{Section: "workers", Path: "workers", Name: "Workers", Key: "w", Badge: badge(head.Alive.N)},
			{Section: "limits", Path: "limits", Name: "Limits", Key: "l"},
			{Section: "locks", Path: "locks", Name: "Locks", Key: "k"},
		}},
		{"Record", []navItem{
			{Section: "audit", Path: "audit", Name: "Audit log", Key: "a"},
			{Section: "health", Path: "health", Name: "Health", Key: "h"},
		}},
	}
}

// functions are those of the templates.
func functions() template.FuncMap {
	return template.FuncMap{
		"ago": ago, "brief": brief, "number": number, "tally": tally, "rough": rough, "bytes": bytesText, "clip": clip, "cell": cell, "zoned": zoned, "row": rowID,
		"line": firstLine, "plural": plural, "per": per, "stamp": stampOf, "phase": phaseOf, "json": jsonOf, "short": short, "dict": dict,
		"columns": columns, "sinces": func() []string { return []string{"1h", "6h", "24h", "7d"} },
		"ratio": func(failed, dead, ended int64) float64 { return float64(failed+dead) / float64(max(ended, 1)) }, "link": link, "lines": lines, "percent": percent, "share": shareOf, "overdue": overdue, "names": names, "span": span, "reason": reasonOf, "figure": figureText, "compact": compactFigure, "headline": headline, "initialWord": initialWord, "tagged": tagged, "subject": subjectTo, "attended": attendedOf, "initial": initial, "detail": detailOf, "limit": limitText,
		"part": func(n, of int) int { return shareOf(float64(n) / float64(max(of, 1))) }, "number64": func(n int) string { return number(int64(n)) }, "plural64": func(n int, one, more string) string { return plural(int64(n), one, more) },
	}
}
