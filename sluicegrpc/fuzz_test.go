package sluicegrpc

import (
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

// FuzzRead reads any status and any pushback: as bytes from the network, and with the same bytes as a
// RetryInfo and as a QuotaFailure. A wait is never negative, and one that cannot be read is none.
func FuzzRead(f *testing.F) {
	info, err := anypb.New(&errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)})
	if err != nil {
		f.Fatal(err)
	}
	good, err := proto.Marshal(&spb.Status{Code: 8, Message: "slow down", Details: []*anypb.Any{info}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, "1500", "", int64(3), int32(0))
	f.Add(info.Value, "-1", "7", int64(-1)<<63, int32(-1)<<31)
	f.Add([]byte{0xff}, "99999999999999999999", "", int64(1)<<62, int32(999999999))
	f.Fuzz(func(t *testing.T, data []byte, pushback, second string, seconds int64, nanos int32) {
		trailer := metadata.MD{}
		for _, v := range []string{pushback, second} {
			if v != "" {
				trailer.Append("grpc-retry-pushback-ms", v)
			}
		}
		exact, err := anypb.New(&errdetails.RetryInfo{RetryDelay: &durationpb.Duration{Seconds: seconds, Nanos: nanos}})
		if err != nil {
			t.Fatal(err)
		}
		all := []*spb.Status{{Code: 8, Details: []*anypb.Any{
			exact,
			{TypeUrl: info.TypeUrl, Value: data},
			{TypeUrl: "type.googleapis.com/google.rpc.QuotaFailure", Value: data},
			{TypeUrl: string(data), Value: data},
		}}}
		if from := new(spb.Status); proto.Unmarshal(data, from) == nil {
			all = append(all, from)
		}
		for _, s := range all {
			got := read(status.FromProto(s), trailer)
			if got.wait < 0 || got.again && got.never {
				t.Errorf("%+v", got)
			}
			if len(trailer) == 0 && (got.again || got.never) {
				t.Errorf("%+v without a pushback", got)
			}
		}
	})
}
