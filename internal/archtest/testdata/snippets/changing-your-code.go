package changing

import "encoding/json"

//snippet

var _ = json.Marshal
