package conn

import "time"

// HeldFor is how long claims and settles skip runs whose rows other transactions hold, after
// they have met one.
const HeldFor = 10 * time.Second
