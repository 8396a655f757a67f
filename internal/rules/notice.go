package rules

// Notice says what happened to a run, or to a batch. The numbers are stored.
type Notice int16

// The kinds of notices.
const (
	NoticeInput  Notice = 0 // it was sent an input
	NoticeLook   Notice = 1 // it has a new condition, or one of its sources has ended
	NoticeEnded  Notice = 2 // it has ended, or was deleted; or what others wait for has become of a batch
	NoticeOrphan Notice = 3 // its parent was cancelled, or deleted before it had ended
	NoticeMember Notice = 4 // its batch was cancelled
)

// MostWaiters is at how many waiters of an ended run one release looks.
const MostWaiters = 1000
