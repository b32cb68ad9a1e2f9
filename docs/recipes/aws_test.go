package recipes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/presets"
	"github.com/sluice-go/sluice/sluicetest"
)

func paced(base http.RoundTripper, cfg aws.Config) (aws.Config, error) {
	// begin aws-sdk-go-v2
	through := presets.AWS()
	through.Gate.Concurrency = 16 // the fewer, the fewer are throttled before the rate is found
	transport, err := sluicehttp.New(base, through)
	if err != nil {
		return cfg, err
	}
	cfg.HTTPClient = &http.Client{Transport: transport}
	cfg.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) { o.RateLimiter = ratelimit.None }) // the gate has a retry budget
	}
	// end aws-sdk-go-v2
	return cfg, nil
}

func s3Client(base http.RoundTripper, cfg aws.Config) (*s3.Client, error) {
	cfg, err := paced(base, cfg)
	return s3.NewFromConfig(cfg), err
}

func dynamoClient(base http.RoundTripper, cfg aws.Config) (*dynamodb.Client, error) {
	cfg, err := paced(base, cfg)
	return dynamodb.NewFromConfig(cfg), err
}

// begin aws-sdk-go-v2, a retryer
// A retryer is one of the SDK whose attempts wait for a gate before they are signed.
type retryer struct {
	aws.RetryerV2
	gate *sluice.Gate
}

// GetAttemptToken waits for the rate. It holds no permit: the SDK may not give the token back.
func (r retryer) GetAttemptToken(ctx context.Context) (release func(error) error, err error) {
	if err := r.gate.Wait(ctx); err != nil {
		return nil, err
	}
	return r.RetryerV2.GetAttemptToken(ctx)
}

var throttles = retry.IsErrorThrottles(retry.DefaultThrottles)

// RetryDelay lets all calls wait after a throttle, and not only the one that got it.
func (r retryer) RetryDelay(attempt int, failed error) (time.Duration, error) {
	d, err := r.RetryerV2.RetryDelay(attempt, failed)
	if err == nil && throttles.IsErrorThrottle(failed).Bool() {
		r.gate.PauseUntil(time.Now().Add(d), failed.Error())
	}
	return d, err
}

// end aws-sdk-go-v2, a retryer

func withRetryer(cfg aws.Config) (aws.Config, error) {
	// begin aws-sdk-go-v2, use of the retryer
	gate, err := sluice.New(sluice.Config{Rate: sluice.Rate{Count: 100, Per: time.Second}})
	if err != nil {
		return cfg, err
	}
	cfg.Retryer = func() aws.Retryer { return retryer{retry.NewStandard(), gate} }
	// end aws-sdk-go-v2, use of the retryer
	return cfg, nil
}

// begin aws-sdk-go-v2, a quota of retries
// A quota is a bucket as a retry.RateLimiter, which bounds retries and not calls. A retry
// takes its cost and gives it back if it succeeds. It is also given back by time.
type quota struct{ *leaky.Bucket }

func (q quota) GetToken(ctx context.Context, cost uint) (release func() error, err error) {
	if r := q.Take(int64(cost)); !r.Allowed() {
		return nil, fmt.Errorf("too many retries, the next one in %v", r.RetryAfter)
	}
	return func() error { return q.AddTokens(cost) }, nil
}

func (q quota) AddTokens(n uint) error { return q.Adjust(context.Background(), -int64(n), 0) }

// end aws-sdk-go-v2, a quota of retries

func withQuota(cfg aws.Config) (aws.Config, error) {
	// begin aws-sdk-go-v2, use of the quota
	bucket, err := leaky.New(limits.Rate{Count: 5, Per: time.Second, Burst: 50}) // 10 retries
	if err != nil {
		return cfg, err
	}
	cfg.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) { o.RateLimiter, o.RetryCost = quota{bucket}, 5 })
	}
	// end aws-sdk-go-v2, use of the quota
	return cfg, nil
}

var _ retry.RateLimiter = quota{}

const (
	slowDown  = `<Error><Code>SlowDown</Code></Error>`
	tooMany   = `{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"Rate exceeded"}`
	jsonOfAWS = "Content-Type: application/x-amz-json-1.0"
)

// The header with which the SDK counts its attempts.
var byTransport = promised{attempts: "Amz-Sdk-Request", first: "attempt=1; max=3"}

// bothModes runs f with the retries that the SDK has, and with those that it is going to have.
func bothModes(t *testing.T, f func(t *testing.T)) {
	for _, mode := range []string{"false", "true"} {
		t.Run(mode, func(t *testing.T) {
			t.Setenv("AWS_NEW_RETRIES_2026", mode)
			f(t)
		})
	}
}

func awsConfig(endpoint string) aws.Config {
	return aws.Config{
		Region:       "eu-west-1",
		BaseEndpoint: aws.String(endpoint),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
		}),
	}
}

func getObject(ctx context.Context, client *s3.Client) error {
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("b"), Key: aws.String("k")})
	if err != nil {
		return err
	}
	defer out.Body.Close()
	_, err = io.Copy(io.Discard, out.Body)
	return err
}

func putItem(ctx context.Context, client *dynamodb.Client) error {
	_, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("t"), Item: map[string]types.AttributeValue{
		"id": &types.AttributeValueMemberS{Value: "x"},
	}})
	return err
}

func TestAWS_S3(t *testing.T) { bothModes(t, tryS3) }

func tryS3(t *testing.T) {
	throttling := sluicetest.First(20, sluicetest.Reply(503, slowDown, "Content-Type: application/xml"))
	failing := sluicetest.On(20, sluicetest.Status(500))
	// With the delay all calls have left before the first is refused. Those that leave later
	// would ask one after the other, ever more slowly.
	for name, fault := range map[string]sluicetest.Layer{"throttling": throttling, "failing": failing} {
		t.Run(name, func(t *testing.T) {
			seen := server(t, func(ctx context.Context, base http.RoundTripper) {
				client, err := s3Client(base, awsConfig("https://s3.test"))
				if err != nil {
					t.Fatal(err)
				}
				parallel(t, 50, func() error { return getObject(ctx, client) })
			}, sluicetest.Delay(time.Millisecond), fault, sluicetest.Reply(200, "content"))
			want := byTransport // which repeats a GET; and all throttles
			want.ok, want.failed = 50, map[string]int{"throttling": 20, "failing": 1}[name]
			want.check(t, seen)
		})
	}
}

// The transport cannot repeat an upload of more than 64 KiB, and the SDK can. With its own
// quota and without a Concurrency 100 retries would use that up, and most uploads fail.
func TestAWS_Upload(t *testing.T) { bothModes(t, tryUpload) }

func tryUpload(t *testing.T) {
	const uploads = 300
	throttle := sluicetest.Reply(503, slowDown, "Content-Type: application/xml")
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := s3Client(base, awsConfig("https://s3.test"))
		if err != nil {
			t.Fatal(err)
		}
		parallel(t, uploads, func() error {
			_, err := client.PutObject(ctx, &s3.PutObjectInput{
				Bucket: aws.String("b"), Key: aws.String("k"), Body: bytes.NewReader(make([]byte, 100_000)),
			})
			return err
		})
	}, sluicetest.ReadBody(), sluicetest.Delay(20*time.Millisecond),
		sluicetest.When(notWithin(100, 20), throttle))
	throttled := len(seen.Requests) - uploads
	if throttled > 60 {
		t.Errorf("%d of %d requests were throttled", throttled, len(seen.Requests))
	}
	want := byTransport
	want.ok, want.failed, want.repeated = uploads, throttled, throttled
	want.check(t, seen)
}

// notWithin returns whether a request is not within a rate per second, with a burst.
func notWithin(rate, burst int64) func(int, *http.Request) bool {
	var once sync.Once
	var bucket *leaky.Bucket
	return func(int, *http.Request) bool {
		once.Do(func() { bucket = limits.Must(leaky.New(limits.Rate{Count: rate, Per: time.Second, Burst: burst})) })
		return !bucket.Take(1).Allowed()
	}
}

func TestAWS_DynamoDB(t *testing.T) { bothModes(t, tryDynamoDB) }

func tryDynamoDB(t *testing.T) {
	throttling := sluicetest.First(20, sluicetest.Reply(400, tooMany, jsonOfAWS))
	failing := sluicetest.On(20, sluicetest.Status(500))
	for name, fault := range map[string]sluicetest.Layer{"throttling": throttling, "failing": failing} {
		t.Run(name, func(t *testing.T) {
			seen := server(t, func(ctx context.Context, base http.RoundTripper) {
				client, err := dynamoClient(base, awsConfig("https://dynamodb.test"))
				if err != nil {
					t.Fatal(err)
				}
				parallel(t, 50, func() error { return putItem(ctx, client) })
			}, sluicetest.Delay(time.Millisecond), fault, sluicetest.Reply(200, "{}", jsonOfAWS))
			want := byTransport
			want.ok, want.failed = 50, 20
			if name == "failing" {
				want.failed, want.repeated = 1, 1 // a POST: the SDK knows that it may
			}
			want.check(t, seen)
		})
	}
}

// Two services wait for one gate, before their requests are signed. A throttle pauses both,
// and the SDK alone retries.
func TestAWS_Retryer(t *testing.T) { bothModes(t, tryRetryer) }

func tryRetryer(t *testing.T) {
	limit := sluicetest.Limit{Count: 100, Per: time.Second, Burst: 1}
	throttled := sluicetest.On(20, sluicetest.Reply(503, slowDown, "Content-Type: application/xml"))
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		cfg := awsConfig("https://aws.test")
		cfg.HTTPClient = &http.Client{Transport: base}
		cfg, err := withRetryer(cfg)
		if err != nil {
			t.Fatal(err)
		}
		objects, items := s3.NewFromConfig(cfg), dynamodb.NewFromConfig(cfg)
		var calls atomic.Int64
		parallel(t, 400, func() error {
			if calls.Add(1)%2 == 0 {
				return getObject(ctx, objects)
			}
			return putItem(ctx, items)
		})
	}, sluicetest.Enforce(limit), throttled, sluicetest.Path("/b/k", sluicetest.Reply(200, "content")), sluicetest.Reply(200, "{}", jsonOfAWS))
	want := byTransport
	want.ok, want.failed, want.repeated = 400, 1, 1
	want.check(t, seen)
	if err := seen.CheckSpacing(10 * time.Millisecond); err != nil {
		t.Error(err)
	}
	// The queue takes 4 s. A signature has whole seconds, and so has the correction of the
	// clock that the SDK makes.
	midnight := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when a bubble begins
	for _, r := range seen.Requests {
		signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if sent := midnight.Add(r.Arrived); err != nil || sent.Sub(signed) >= 2*time.Second {
			t.Errorf("%v was signed at %v, %v, and sent at %v", r, signed, err, sent)
		}
	}
}

func TestAWS_RetryerPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := withRetryer(awsConfig("https://aws.test"))
		if err != nil {
			t.Fatal(err)
		}
		r := cfg.Retryer().(retryer)
		for code, pauses := range map[string]bool{"InternalError": false, "SlowDown": true} {
			d, err := r.RetryDelay(3, &smithy.GenericAPIError{Code: code})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.gate.Stats().PausedUntil; got.Equal(time.Now().Add(d)) != pauses {
				t.Errorf("%s, a delay of %v: paused until %v", code, d, got)
			}
			r.gate.Resume()
		}
	})
}

// Without a quota 100 calls of a server that is down are 300 requests. The quota allows 10
// retries, and then one each second, for all clients together.
func TestAWS_Quota(t *testing.T) { bothModes(t, tryQuota) }

func tryQuota(t *testing.T) {
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		cfg := awsConfig("https://aws.test")
		cfg.HTTPClient = &http.Client{Transport: base}
		cfg, err := withQuota(cfg)
		if err != nil {
			t.Fatal(err)
		}
		objects, items := s3.NewFromConfig(cfg), dynamodb.NewFromConfig(cfg)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if getObject(ctx, objects) == nil || putItem(ctx, items) == nil {
					t.Error("a call has succeeded")
				}
			})
		}
		wg.Wait()
	}, sluicetest.Status(500))
	arrivals := seen.Arrivals()
	seconds := int(arrivals[len(arrivals)-1] / time.Second)
	if retries := len(arrivals) - 100; retries < 10 || retries > 10+seconds {
		t.Errorf("%d retries in %d s, want 10 and one more each second", retries, seconds)
	}
}

// What a retry took is given back if it succeeds: 50 calls one after another fail at first,
// and each is repeated.
func TestAWS_QuotaGivenBack(t *testing.T) { bothModes(t, tryQuotaGivenBack) }

func tryQuotaGivenBack(t *testing.T) {
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		cfg := awsConfig("https://aws.test")
		cfg.HTTPClient = &http.Client{Transport: base}
		cfg, err := withQuota(cfg)
		if err != nil {
			t.Fatal(err)
		}
		client := s3.NewFromConfig(cfg)
		for range 50 {
			if err := getObject(ctx, client); err != nil {
				t.Fatal(err)
			}
		}
	}, sluicetest.When(func(n int, _ *http.Request) bool { return n%2 == 1 }, sluicetest.Status(500)))
	want := byTransport
	want.ok, want.failed, want.repeated = 50, 50, 50
	want.check(t, seen)
}
