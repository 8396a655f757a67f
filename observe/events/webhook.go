package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// WebhookConfig says where a webhook is.
type WebhookConfig struct {
	URL string // https, or http
	// Secret signs what is sent, see Verify: whsec_ and base64, or any text of at least
	// 16 bytes. Two of them, separated by a space, sign twice while you change it.
	Secret string
	Client *http.Client // its redirects are not followed; default: one with http.DefaultTransport
}

// Webhook is a Sink that posts each batch to a URL, in the form of Standard Webhooks
// (https://www.standardwebhooks.com). An answer of 200 to 299 takes the batch. After
// 408, 409, 425, 429, 500 to 599 and errors of the network it is sent again; any other
// answer, redirects included, drops it.
type Webhook struct {
	url    string
	keys   [][]byte
	client http.Client
}

// NewWebhook returns a Webhook. The error says what of the configuration is wrong, and
// neither names the URL nor the secret.
func NewWebhook(config WebhookConfig) (*Webhook, error) {
	if err := CheckURL(config.URL); err != nil {
		return nil, err
	}
	keys, err := parseSecrets(config.Secret)
	if err != nil {
		return nil, err
	}
	w := &Webhook{url: config.URL, keys: keys}
	if config.Client != nil {
		w.client = *config.Client
	}
	w.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return w, nil
}

// CheckURL reports whether a URL may be that of a webhook.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Fragment != "" {
		return errors.New("the URL of a webhook: want https://host/path")
	}
	return nil
}

// retried are answers other than 5xx after which a batch is sent again.
var retried = map[int]bool{ //nolint:gochecknoglobals // a constant table
	http.StatusRequestTimeout: true, http.StatusConflict: true, http.StatusTooEarly: true, http.StatusTooManyRequests: true,
}

// Send posts a batch.
func (w *Webhook) Send(ctx context.Context, batch Batch) error {
	body, err := json.Marshal(batch)
	if err != nil {
		return Permanent(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return Permanent(errors.New("the URL of the webhook cannot be used"))
	}
	id, at := batch.ID.String(), time.Now()
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "durable-events/"+strconv.Itoa(Schema))
	request.Header.Set(headerID, id)
	request.Header.Set(headerAt, strconv.FormatInt(at.Unix(), 10))
	request.Header.Set(headerSignature, signatures(w.keys, id, at, body))
	answer, err := w.client.Do(request)
	if err != nil {
		if inURL, ok := errors.AsType[*url.Error](err); ok { // which may hold a secret
			err = inURL.Err
		}
		return fmt.Errorf("webhook: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.CopyN(io.Discard, answer.Body, 4<<10) // so that the connection can be used again
	return verdict(answer)
}

// verdict is what an answer means.
func verdict(answer *http.Response) error {
	if answer.StatusCode >= 200 && answer.StatusCode <= 299 {
		return nil
	}
	err := fmt.Errorf("webhook: the answer was %d", answer.StatusCode)
	if answer.StatusCode < 500 && !retried[answer.StatusCode] {
		return Permanent(err)
	}
	if seconds, parsed := strconv.Atoi(answer.Header.Get("Retry-After")); parsed == nil && seconds > 0 {
		return After(err, time.Duration(min(seconds, 3600))*time.Second)
	}
	return err
}
