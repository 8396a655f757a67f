// Package events passes on what happens to runs and workers, to functions of yours and
// to webhooks.
//
//	hook, err := events.NewWebhook(events.WebhookConfig{URL: url, Secret: secret})
//	stream := events.New(hook, events.Config{Kinds: []events.Kind{events.RunDead}, Worker: "web-7"})
//	worker := durable.NewWorker(store, durable.WorkerConfig{Hooks: stream.Hooks()})
//	go stream.Run(ctx) // and wait for it when the worker has ended
//
// A sink that is slow, fails or is away changes no run and delays none: events wait in a
// queue of bounded size, and those that do not fit are dropped and counted. A process
// that is killed loses the events that wait. Do not build anything on events that needs
// each of them: what is stored is the truth, and events say where to read it.
//
// docs/events.md describes the JSON. Begin reading at event.go.
package events
