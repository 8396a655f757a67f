package recur

// ArgsOfOne is how large args count as one occurrence more.
const ArgsOfOne = argsOfOne

// Left is how many occurrences this transaction may still take.
func (p *Planner) Left() int { return p.left }

// SetLeft sets it.
func (p *Planner) SetLeft(n int) { p.left = n }
