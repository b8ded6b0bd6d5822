//! The table of public sets: where they come from, under which licence, how large, and the
//! checksums of their files where they are known.

use super::{Public, Remote};

/// A file whose bytes are known.
const fn known(name: &'static str, url: &'static str, bytes: u64, sha256: &'static str) -> Remote {
    Remote { name, url, bytes, sha256: Some(sha256) }
}

/// A file of about so many bytes.
const fn about(name: &'static str, url: &'static str, bytes: u64) -> Remote {
    Remote { name, url, bytes, sha256: None }
}

/// Public data sets that are not built in.
pub static PUBLIC: &[Public] = &[
    Public {
        name: "cora",
        nodes: 2_708,
        edges: 5_278,
        download_mb: None,
        source: "kimiyoung/planetoid",
        licence: "MIT (repository); LINQS states none",
        files: &[
            known(
                "ind.cora.x",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.cora.x",
                ),
                22_119,
                "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
            ),
            known(
                "ind.cora.y",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.cora.y",
                ),
                4_054,
                "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
            ),
            known(
                "ind.cora.tx",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.cora.tx",
                ),
                148_025,
                "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
            ),
            known(
                "ind.cora.ty",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.cora.ty",
                ),
                28_135,
                "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
            ),
            known(
                "ind.cora.allx",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.cora.allx",
                ),
                257_305,
                "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
            ),
            known(
                "ind.cora.ally",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.cora.ally",
                ),
                47_959,
                "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
            ),
            known(
                "ind.cora.graph",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.cora.graph",
                ),
                59_847,
                "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
            ),
            known(
                "ind.cora.test.index",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.cora.test.index",
                ),
                5_000,
                "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
            ),
        ],
    },
    Public {
        name: "citeseer",
        nodes: 3_327,
        edges: 4_552,
        download_mb: None,
        source: "kimiyoung/planetoid",
        licence: "MIT (repository); LINQS states none",
        files: &[
            known(
                "ind.citeseer.x",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.citeseer.x",
                ),
                31_087,
                "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
            ),
            known(
                "ind.citeseer.y",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.citeseer.y",
                ),
                3_014,
                "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
            ),
            known(
                "ind.citeseer.tx",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.citeseer.tx",
                ),
                260_321,
                "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
            ),
            known(
                "ind.citeseer.ty",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.citeseer.ty",
                ),
                24_135,
                "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
            ),
            known(
                "ind.citeseer.allx",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.citeseer.allx",
                ),
                595_021,
                "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
            ),
            known(
                "ind.citeseer.ally",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.citeseer.ally",
                ),
                55_623,
                "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
            ),
            known(
                "ind.citeseer.graph",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.citeseer.graph",
                ),
                61_987,
                "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
            ),
            known(
                "ind.citeseer.test.index",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.citeseer.test.index",
                ),
                5_000,
                "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
            ),
        ],
    },
    Public {
        name: "pubmed",
        nodes: 19_717,
        edges: 44_324,
        download_mb: None,
        source: "kimiyoung/planetoid",
        licence: "MIT (repository); LINQS states none",
        files: &[
            known(
                "ind.pubmed.x",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.pubmed.x",
                ),
                23_172,
                "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
            ),
            known(
                "ind.pubmed.y",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.pubmed.y",
                ),
                854,
                "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
            ),
            known(
                "ind.pubmed.tx",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.pubmed.tx",
                ),
                405_505,
                "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
            ),
            known(
                "ind.pubmed.ty",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.pubmed.ty",
                ),
                12_135,
                "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
            ),
            known(
                "ind.pubmed.allx",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.pubmed.allx",
                ),
                7_578_385,
                "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
            ),
            known(
                "ind.pubmed.ally",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.pubmed.ally",
                ),
                224_739,
                "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
            ),
            known(
                "ind.pubmed.graph",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.pubmed.graph",
                ),
                471_808,
                "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
            ),
            known(
                "ind.pubmed.test.index",
                concat!(
                    "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/",
                    "ind.pubmed.test.index",
                ),
                6_000,
                "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
            ),
        ],
    },
    Public {
        name: "amazon-photo",
        nodes: 7_650,
        edges: 119_081,
        download_mb: None,
        source: "shchur/gnn-benchmark",
        licence: "MIT (repository)",
        files: &[known(
            "amazon_electronics_photo.npz",
            concat!(
                "https://raw.githubusercontent.com/shchur/gnn-benchmark/master/data/npz/",
                "amazon_electronics_photo.npz",
            ),
            17_113_960,
            "bdb1feb8e6ff42ee44024b04479145029c563fd42fc31bff80af20887ba0439a",
        )],
    },
    Public {
        name: "amazon-computers",
        nodes: 13_752,
        edges: 245_861,
        download_mb: None,
        source: "shchur/gnn-benchmark",
        licence: "MIT (repository)",
        files: &[known(
            "amazon_electronics_computers.npz",
            concat!(
                "https://raw.githubusercontent.com/shchur/gnn-benchmark/master/data/npz/",
                "amazon_electronics_computers.npz",
            ),
            31_921_488,
            "736ba1d9fd85eac2da83a5ad25c463f04b0031a6ca01563f90a7099d9e8ffb2c",
        )],
    },
    Public {
        name: "coauthor-cs",
        nodes: 18_333,
        edges: 81_894,
        download_mb: None,
        source: "shchur/gnn-benchmark",
        licence: "MIT (repository)",
        files: &[known(
            "ms_academic_cs.npz",
            concat!(
                "https://raw.githubusercontent.com/shchur/gnn-benchmark/master/data/npz/",
                "ms_academic_cs.npz",
            ),
            12_835_626,
            "933c745734e78908c7eb77172a673fee0503f30e26e5a99b36814d88534c42e3",
        )],
    },
    Public {
        name: "coauthor-physics",
        nodes: 34_493,
        edges: 247_962,
        download_mb: None,
        source: "shchur/gnn-benchmark",
        licence: "MIT (repository)",
        files: &[known(
            "ms_academic_phy.npz",
            concat!(
                "https://raw.githubusercontent.com/shchur/gnn-benchmark/master/data/npz/",
                "ms_academic_phy.npz",
            ),
            16_374_005,
            "e4d68468eba5fb8f6b280ffd406bd53e6e4295ba1dd2967d6fe99b978e4b3375",
        )],
    },
    Public {
        name: "tolokers",
        nodes: 11_758,
        edges: 519_000,
        download_mb: None,
        source: "yandex-research/heterophilous-graphs",
        licence: "MIT (repository)",
        files: &[known(
            "tolokers.npz",
            concat!(
                "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data/",
                "tolokers.npz",
            ),
            1_329_769,
            "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667",
        )],
    },
    Public {
        name: "roman-empire",
        nodes: 22_662,
        edges: 32_927,
        download_mb: None,
        source: "yandex-research/heterophilous-graphs",
        licence: "MIT (repository)",
        files: &[about(
            "roman_empire.npz",
            "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data/roman_empire.npz",
            14_000_000,
        )],
    },
    Public {
        name: "amazon-ratings",
        nodes: 24_492,
        edges: 93_050,
        download_mb: None,
        source: "yandex-research/heterophilous-graphs",
        licence: "MIT (repository)",
        files: &[about(
            "amazon_ratings.npz",
            "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data/amazon_ratings.npz",
            14_000_000,
        )],
    },
    Public {
        name: "minesweeper",
        nodes: 10_000,
        edges: 39_402,
        download_mb: None,
        source: "yandex-research/heterophilous-graphs",
        licence: "MIT (repository)",
        files: &[about(
            "minesweeper.npz",
            "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data/minesweeper.npz",
            500_000,
        )],
    },
    Public {
        name: "questions",
        nodes: 48_921,
        edges: 153_540,
        download_mb: None,
        source: "yandex-research/heterophilous-graphs",
        licence: "MIT (repository)",
        files: &[about(
            "questions.npz",
            "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data/questions.npz",
            30_000_000,
        )],
    },
    Public {
        name: "actor",
        nodes: 7_600,
        edges: 26_659,
        download_mb: None,
        source: "graphdml-uiuc-jlu/geom-gcn",
        licence: "none stated",
        files: &[
            known(
                "film_split_0.6_0.2_0.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "film_split_0.6_0.2_0.npz",
                ),
                4_214,
                "4505a41d4e90abd94d1ec22571ce528b09ad7cf20d87f764aebd4177590767f5",
            ),
            known(
                "film_split_0.6_0.2_1.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "film_split_0.6_0.2_1.npz",
                ),
                4_231,
                "1871b0d24e3977c41e378fd24acc8025b63f86b77739be77a5b558d1287f207d",
            ),
            known(
                "film_split_0.6_0.2_2.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "film_split_0.6_0.2_2.npz",
                ),
                4_224,
                "d26680e911ef3ecc9fc2a26d90c9d35028c63aadd7a5aea774649d1496c282cb",
            ),
            known(
                "film_split_0.6_0.2_3.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "film_split_0.6_0.2_3.npz",
                ),
                4_207,
                "6755ad5f6a0be8594b344af3d2261eed935b83b73c4d70136e1a7beea7f78cb0",
            ),
            known(
                "film_split_0.6_0.2_4.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "film_split_0.6_0.2_4.npz",
                ),
                4_233,
                "328fdca62b25074f21f2922518e042f24b3b8a1fc378f9dfb2cae36439aed902",
            ),
            known(
                "film_split_0.6_0.2_5.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "film_split_0.6_0.2_5.npz",
                ),
                4_224,
                "5b3161a8dc8de4b2e651ebd56d68e768d1377044895b325566117fe26ab81cb7",
            ),
            known(
                "film_split_0.6_0.2_6.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "film_split_0.6_0.2_6.npz",
                ),
                4_221,
                "e251b38abd4d7931b5e9ae5aba99dcdf87f0be283bdf6e65421274a1c9ef1df6",
            ),
            known(
                "film_split_0.6_0.2_7.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "film_split_0.6_0.2_7.npz",
                ),
                4_205,
                "12164ef9f5620a2f12a387f4f2b8636859d42201101d6d32829ade62d5a98326",
            ),
            known(
                "film_split_0.6_0.2_8.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "film_split_0.6_0.2_8.npz",
                ),
                4_217,
                "405cd1f7f631f678119f8bf2405809e86614d532985beb59566fcf95abd35b3f",
            ),
            known(
                "film_split_0.6_0.2_9.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "film_split_0.6_0.2_9.npz",
                ),
                4_208,
                "505691c5d41bb37b20d085415dcdde2e8e68b5bc4e1feb2c0e361308002012bb",
            ),
            known(
                "out1_graph_edges.txt",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/new_data/film/",
                    "out1_graph_edges.txt",
                ),
                323_820,
                "997cdce67ea9c29257d3ffe796328391931901cf823830affa453178b60e2c3e",
            ),
            known(
                "out1_node_feature_label.txt",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/new_data/film/",
                    "out1_node_feature_label.txt",
                ),
                207_718,
                "1d5cdd094f8b91e770f6decfca85b35cf42f75d1efb51055fd6af16e11820ff8",
            ),
        ],
    },
    Public {
        name: "texas",
        nodes: 183,
        edges: 279,
        download_mb: None,
        source: "graphdml-uiuc-jlu/geom-gcn",
        licence: "none stated",
        files: &[
            known(
                "out1_graph_edges.txt",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/new_data/texas/",
                    "out1_graph_edges.txt",
                ),
                2_172,
                "0fe85183243a78cbee9b85a684f8240963d04d1020d10e9cd2b8cfb25e33b476",
            ),
            known(
                "out1_node_feature_label.txt",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/new_data/texas/",
                    "out1_node_feature_label.txt",
                ),
                624_308,
                "cf5a3ca346cdd1210b8342e22517fcbbdae658065b7a3145f59350e50e6236a3",
            ),
            known(
                "texas_split_0.6_0.2_0.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "texas_split_0.6_0.2_0.npz",
                ),
                698,
                "7ba77bf7a8856fcc0ab15623a611b8cdce994e820f577da914123fb4f45272b0",
            ),
            known(
                "texas_split_0.6_0.2_1.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "texas_split_0.6_0.2_1.npz",
                ),
                701,
                "21cc244a96e3c51ad7993afb4dd227f90e467d82b964bb42d7d9fc500a6ef87f",
            ),
            known(
                "texas_split_0.6_0.2_2.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "texas_split_0.6_0.2_2.npz",
                ),
                756,
                "b9e96a699ccf3a4c31ffbd03e52b25570889833425d20fa44e06c37b327cf61e",
            ),
            known(
                "texas_split_0.6_0.2_3.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "texas_split_0.6_0.2_3.npz",
                ),
                759,
                "1a7deeb1285009789d5e6045d7e39f7d019c9223d9a75a2b7ce5e26d33b51f63",
            ),
            known(
                "texas_split_0.6_0.2_4.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "texas_split_0.6_0.2_4.npz",
                ),
                702,
                "b5419ff3fe31adcae66fdb085d4f47d0b188e9436ab59f438632af969aafc674",
            ),
            known(
                "texas_split_0.6_0.2_5.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "texas_split_0.6_0.2_5.npz",
                ),
                691,
                "68405fd1b9ff6105d99717220ecbd198785e338bf4a73abee722bbc9703d2667",
            ),
            known(
                "texas_split_0.6_0.2_6.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "texas_split_0.6_0.2_6.npz",
                ),
                756,
                "8ad78b973164e70e5ac0d282e79adcbc6006e373909fbdfd72a13131e09040b8",
            ),
            known(
                "texas_split_0.6_0.2_7.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "texas_split_0.6_0.2_7.npz",
                ),
                693,
                "a84bcbf997365bddf5fdf72ed49dc7e435e475f8c6210f8cdee7c8581a2bd6df",
            ),
            known(
                "texas_split_0.6_0.2_8.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "texas_split_0.6_0.2_8.npz",
                ),
                762,
                "65ba65f296f91d40d2d7d3c9369b67415094a7e254c6eee48cd6d6531c586fdf",
            ),
            known(
                "texas_split_0.6_0.2_9.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "texas_split_0.6_0.2_9.npz",
                ),
                693,
                "4306981d654ad8835c000c1f73fb6c1e60dfe99e26c13a6073f3b0f4cc3ce6ee",
            ),
        ],
    },
    Public {
        name: "wisconsin",
        nodes: 251,
        edges: 450,
        download_mb: None,
        source: "graphdml-uiuc-jlu/geom-gcn",
        licence: "none stated",
        files: &[
            known(
                "out1_graph_edges.txt",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/new_data/wisconsin/",
                    "out1_graph_edges.txt",
                ),
                3_606,
                "ebd213511c88fce1eda450c2f920600c4b8cbb38f02384856bcc47c6ec1807ae",
            ),
            known(
                "out1_node_feature_label.txt",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/new_data/wisconsin/",
                    "out1_node_feature_label.txt",
                ),
                856_324,
                "a32b0aa38d42f0d36841e8a8cb646d197f0ff33a182ac75a2b4476aeed3c7e4b",
            ),
            known(
                "wisconsin_split_0.6_0.2_0.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "wisconsin_split_0.6_0.2_0.npz",
                ),
                805,
                "f66f641e191d35d491cd3b63d6c2cd93c4b436da398984b44c19a8d4d7e7b1a5",
            ),
            known(
                "wisconsin_split_0.6_0.2_1.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "wisconsin_split_0.6_0.2_1.npz",
                ),
                739,
                "534aeb97266bd5a85a8587adf8eebad3f2e001c1240610f24b62c0ad0c2466ee",
            ),
            known(
                "wisconsin_split_0.6_0.2_2.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "wisconsin_split_0.6_0.2_2.npz",
                ),
                747,
                "047a5b641778ec3a4c76055fd7f18ecb2424c0952f20dfff7e1b17749d8acbdd",
            ),
            known(
                "wisconsin_split_0.6_0.2_3.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "wisconsin_split_0.6_0.2_3.npz",
                ),
                810,
                "706c27b4c51d046c0316f1e915f093e4a1fff48b3436b3e7c421eab596a99e77",
            ),
            known(
                "wisconsin_split_0.6_0.2_4.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "wisconsin_split_0.6_0.2_4.npz",
                ),
                812,
                "7ee813605eec086457aaff022cf3837f2f893fcf8bd37e3a8d2ff0c80e4c4f87",
            ),
            known(
                "wisconsin_split_0.6_0.2_5.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "wisconsin_split_0.6_0.2_5.npz",
                ),
                749,
                "8094ac2bdaf2cbea8f7a48df66a0800c809b2fd5942740e6b0441b660d3a0dd5",
            ),
            known(
                "wisconsin_split_0.6_0.2_6.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "wisconsin_split_0.6_0.2_6.npz",
                ),
                735,
                "c423a8deea9b18f9ecb6cfd703578e2159df167de01fe7e6195b88995010252d",
            ),
            known(
                "wisconsin_split_0.6_0.2_7.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "wisconsin_split_0.6_0.2_7.npz",
                ),
                733,
                "57ad808c8d4dd94dc4404124370bbcebb3dcc597c2bea6457bf05f220adf1527",
            ),
            known(
                "wisconsin_split_0.6_0.2_8.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "wisconsin_split_0.6_0.2_8.npz",
                ),
                741,
                "27d4d62a2a6aea2cdc399302237512ab0d64fb0c84e648112f97c5896274e42f",
            ),
            known(
                "wisconsin_split_0.6_0.2_9.npz",
                concat!(
                    "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/splits/",
                    "wisconsin_split_0.6_0.2_9.npz",
                ),
                744,
                "3c149cd124a19021031609e0d7743a7be59aae4f88c8d38410138e8f06f5daaf",
            ),
        ],
    },
    Public {
        name: "blogcatalog",
        nodes: 10_312,
        edges: 333_983,
        download_mb: None,
        source: "phanein/deepwalk",
        licence: "GPL-3.0 (repository)",
        files: &[known(
            "blogcatalog.mat",
            concat!(
                "https://raw.githubusercontent.com/phanein/deepwalk/master/example_graphs/",
                "blogcatalog.mat",
            ),
            1_255_783,
            "d4f4fb89ce1ccd4b7e2a183386c000773cc9362cc61f1be5b246a6d9c259da8f",
        )],
    },
    Public {
        name: "facebook-pagepage",
        nodes: 22_470,
        edges: 171_002,
        download_mb: None,
        source: "SNAP, Stanford",
        licence: "none stated",
        files: &[about(
            "facebook_large.zip",
            "https://snap.stanford.edu/data/facebook_large.zip",
            2_600_000,
        )],
    },
    Public {
        name: "twitch",
        nodes: 36_890,
        edges: 492_575,
        download_mb: None,
        source: "SNAP, Stanford",
        licence: "none stated",
        files: &[about("twitch.zip", "https://snap.stanford.edu/data/twitch.zip", 4_200_000)],
    },
    Public {
        name: "lastfm-asia",
        nodes: 7_624,
        edges: 27_806,
        download_mb: None,
        source: "SNAP, Stanford",
        licence: "none stated",
        files: &[about(
            "lastfm_asia.zip",
            "https://snap.stanford.edu/data/lastfm_asia.zip",
            1_500_000,
        )],
    },
    Public {
        name: "deezer-europe",
        nodes: 28_281,
        edges: 92_752,
        download_mb: None,
        source: "SNAP, Stanford",
        licence: "none stated",
        files: &[about(
            "deezer_europe.zip",
            "https://snap.stanford.edu/data/deezer_europe.zip",
            3_200_000,
        )],
    },
    Public {
        name: "github",
        nodes: 37_700,
        edges: 289_003,
        download_mb: None,
        source: "SNAP, Stanford",
        licence: "none stated",
        files: &[about(
            "git_web_ml.zip",
            "https://snap.stanford.edu/data/git_web_ml.zip",
            2_500_000,
        )],
    },
    Public {
        name: "mutag",
        nodes: 3_371,
        edges: 3_721,
        download_mb: None,
        source: "TU Dortmund",
        licence: "none stated",
        files: &[about(
            "MUTAG.zip",
            "https://www.chrsmrrs.com/graphkerneldatasets/MUTAG.zip",
            20_000,
        )],
    },
    Public {
        name: "proteins",
        nodes: 43_471,
        edges: 81_044,
        download_mb: None,
        source: "TU Dortmund",
        licence: "none stated",
        files: &[about(
            "PROTEINS.zip",
            "https://www.chrsmrrs.com/graphkerneldatasets/PROTEINS.zip",
            1_300_000,
        )],
    },
    Public {
        name: "nci1",
        nodes: 122_747,
        edges: 132_753,
        download_mb: None,
        source: "TU Dortmund",
        licence: "none stated",
        files: &[about(
            "NCI1.zip",
            "https://www.chrsmrrs.com/graphkerneldatasets/NCI1.zip",
            1_900_000,
        )],
    },
    Public {
        name: "enzymes",
        nodes: 19_580,
        edges: 37_282,
        download_mb: None,
        source: "TU Dortmund",
        licence: "none stated",
        files: &[about(
            "ENZYMES.zip",
            "https://www.chrsmrrs.com/graphkerneldatasets/ENZYMES.zip",
            900_000,
        )],
    },
    Public {
        name: "ogbn-arxiv",
        nodes: 169_343,
        edges: 1_166_243,
        download_mb: None,
        source: "Open Graph Benchmark",
        licence: "ODC-BY",
        files: &[about(
            "arxiv.zip",
            "http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip",
            80_000_000,
        )],
    },
    Public {
        name: "ogbn-products",
        nodes: 2_449_029,
        edges: 61_859_140,
        download_mb: None,
        source: "Open Graph Benchmark",
        licence: "Amazon licence",
        files: &[about(
            "products.zip",
            "http://snap.stanford.edu/ogb/data/nodeproppred/products.zip",
            1_380_000_000,
        )],
    },
    Public {
        name: "ogbn-proteins",
        nodes: 132_534,
        edges: 39_561_252,
        download_mb: None,
        source: "Open Graph Benchmark",
        licence: "CC-0",
        files: &[about(
            "proteins.zip",
            "http://snap.stanford.edu/ogb/data/nodeproppred/proteins.zip",
            220_000_000,
        )],
    },
    Public {
        name: "reddit",
        nodes: 232_965,
        edges: 57_307_946,
        download_mb: None,
        source: "DGL",
        licence: "none stated",
        files: &[about("reddit.zip", "https://data.dgl.ai/dataset/reddit.zip", 1_380_000_000)],
    },
    Public {
        name: "flickr",
        nodes: 89_250,
        edges: 449_878,
        download_mb: None,
        source: "GraphSAINT keeps it in a Google Drive",
        licence: "see its source",
        files: &[],
    },
    Public {
        name: "yelp",
        nodes: 716_847,
        edges: 6_977_410,
        download_mb: None,
        source: "GraphSAINT keeps it in a Google Drive",
        licence: "see its source",
        files: &[],
    },
    Public {
        name: "ppi",
        nodes: 56_944,
        edges: 818_716,
        download_mb: None,
        source: "its files are in a form that is not read",
        licence: "see its source",
        files: &[],
    },
    Public {
        name: "ogbn-mag",
        nodes: 1_939_743,
        edges: 21_111_007,
        download_mb: Some(400),
        source: "it has several kinds of nodes",
        licence: "see its source",
        files: &[],
    },
    Public {
        name: "ogbn-papers100m",
        nodes: 111_059_956,
        edges: 1_615_685_872,
        download_mb: Some(56000),
        source: "its files are in a form that is not read",
        licence: "see its source",
        files: &[],
    },
];
